"""Ray over several nodes, with stand-ins for srun, scontrol, apptainer, ray, python and lookact that leave notes."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
JOB = ROOT / "jobs/ray.slurm"
CLUSTER = ROOT / "jobs/ray-cluster.yaml"
STAND_INS = {
    "scontrol": 'printf "node-%s\\n" $(seq 1 "$SLURM_JOB_NUM_NODES")',
    "srun": 'echo "srun $*" >>"$NOTES"; while [[ $1 == --* ]]; do shift; done; exec "$@"',
    "apptainer": 'echo "apptainer $*" >>"$NOTES"; shift 3; exec "$@"',
    "ray": 'echo "ray $* | gpus ${CUDA_VISIBLE_DEVICES-all} token $RAY_AUTH_TOKEN" >>"$NOTES"; exec sleep 600',
    # as many nodes as have started, unless one never comes
    "python": 'grep -c "^ray start" "$NOTES" | awk -v lost="${LOST:-0}" "{print \\$1 - lost}"',
    "lookact": 'echo "lookact $*" >>"$NOTES"; exit "${ENDS_WITH:-0}"',
}


@pytest.fixture
def submit(tmp_path):
    """Runs the job on so many nodes; returns its exit code, its last words and the stand-ins' notes."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, body in STAND_INS.items():
        (tools / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tools / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "RAY", "CUDA"))}

    def run(nodes, **variables):
        notes = tmp_path / "notes"
        notes.write_text("")
        env = kept | {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "NOTES": str(notes),
            "SLURM_JOB_ID": "41",
            "SLURM_JOB_NUM_NODES": str(nodes),
            "SLURM_JOB_NODELIST": "node-[1-9]",
            "IMAGE": "",
            "POLL_SECONDS": "0.1",
            "OUT": str(tmp_path),
        }
        done = subprocess.run(["bash", str(JOB)], env=env | variables, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr, notes.read_text().splitlines()

    return run


def test_every_node_joins_and_the_learners_keep_their_gpus(submit):
    code, said, notes = submit(3, LEARNERS="2", SETTINGS="--ray.staleness 1")
    assert code == 0, said
    starts = [line for line in notes if line.startswith("ray start")]
    assert len(starts) == 3
    (head,) = [line for line in starts if "--head" in line]
    assert "--port=20041 --node-ip-address=node-1 --num-gpus=6 --num-cpus=64" in head
    assert "gpus 2,3,4,5,6,7 " in head
    others = [line for line in starts if "--head" not in line]
    assert all("--address=node-1:20041 --num-gpus=8" in line and "gpus all" in line for line in others)
    assert {line.split("--nodelist=")[1].split()[0] for line in notes if " ray start" in line} == {
        "node-1",
        "node-2",
        "node-3",
    }
    # one secret for all of them
    assert len({line.split("token ")[1] for line in starts}) == 1
    (run,) = [line for line in notes if line.startswith("lookact")]
    assert "train nav-rloo --preset full" in run
    assert (
        "--auto-resume --processes 2 --ray.address node-1:20041 --ray.workers 22 --ray.gpus 1 --ray.staleness 1" in run
    )


def test_a_node_that_never_joins_ends_the_job_with_a_word(submit):
    code, said, notes = submit(2, LOST="1", JOIN_SECONDS="1")
    assert code == 1
    assert "1 of 2 nodes joined Ray in 1 s" in said
    assert not [line for line in notes if line.startswith("lookact")]


def test_the_job_ends_as_the_run_did(submit):
    code, said, _ = submit(1, ENDS_WITH="3", IMAGE="lookact.sif")
    assert code == 3
    assert "the run ended with status 3" in said


def test_the_cluster_file_is_what_the_launcher_takes():
    config = yaml.safe_load(CLUSTER.read_text())
    assert config["provider"]["type"] == "local"
    assert any("--num-gpus=7" in command for command in config["head_start_ray_commands"])


@pytest.mark.slow
def test_ray_itself_finds_no_fault_in_the_cluster_file():
    util = pytest.importorskip("ray.autoscaler._private.util", reason="needs lookact[ray]")
    util.validate_config(util.prepare_config(yaml.safe_load(CLUSTER.read_text())))
