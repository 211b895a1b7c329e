"""The SLURM job, with stand-ins for srun, apptainer and lookact that note what they were asked."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
JOB = ROOT / "jobs/pref-sac.slurm"
RUNS = ROOT / "jobs/pref-sac-runs.sh"
SECONDS = 60.0

SRUN = """#!/usr/bin/env bash
echo "srun $*" >>"$NOTES"
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""
APPTAINER = """#!/usr/bin/env bash
echo "apptainer $*" >>"$NOTES"
[[ $1 == exec && $2 == --nv ]] || exit 9
shift 3
exec "$@"
"""
LOOKACT = """#!/usr/bin/env bash
echo "lookact $* | port $SERVER_PORT artifacts ${ARTIFACT_ROOT:-none} gl $MUJOCO_GL" >>"$NOTES"
if [[ $1 == serve ]]; then
    [[ -z ${BROKEN:-} ]] || { echo "no such model"; exit 3; }
    sleep 0.5
    echo "up" >>"$NOTES"
    exec python3 "$STAND_IN" "$SERVER_PORT"
fi
[[ -z ${SLOW:-} ]] || exec sleep 600
[[ -z ${REAL:-} ]] || exec "$REAL" -m lookact "$@"
case " $* " in *" --seed ${FAILING:-none} "*) exit 1 ;; esac
exit 0
"""
STAND_IN = """
import http.server, sys

class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()
"""


@pytest.fixture
def cluster(tmp_path):
    """An environment in which the job finds the stand-ins, and the file where they leave their notes."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in {"srun": SRUN, "apptainer": APPTAINER, "lookact": LOOKACT}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SERVER", "COV"))}
    return kept | {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "NOTES": str(tmp_path / "notes"),
        "STAND_IN": str(tmp_path / "stand_in.py"),
        "OUT": str(tmp_path / "runs"),
        "JOBS_DIR": str(ROOT / "jobs"),
        "SERVER_PORT": str(port),
        "POLL_SECONDS": "0.1",
        "HEALTH_SECONDS": "30",
    }


def submit(cluster, **variables):
    env = cluster | variables
    done = subprocess.run(["bash", str(JOB)], env=env, capture_output=True, text=True, timeout=SECONDS)
    notes = Path(env["NOTES"])
    return done, notes.read_text().splitlines() if notes.exists() else []


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def trainings(notes):
    return [line for line in notes if line.startswith("lookact train")]


@pytest.mark.parametrize("script", [JOB, RUNS], ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script):
    # installed with the other tools of development, beside this Python
    tool = Path(sys.executable).with_name("shellcheck")
    found = subprocess.run([str(tool), str(script)], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_the_runs_start_when_the_server_is_up_and_the_server_ends_with_them(cluster):
    done, notes = submit(cluster, TASK="drawer-open-v3", SEEDS="0 1 2", ARTIFACT_ROOT="/scratch")
    assert done.returncode == 0, done.stdout + done.stderr
    port = cluster["SERVER_PORT"]
    (serving,) = [line for line in notes if line.startswith("lookact serve")]
    assert f"--port {port} --device cuda --dtype bfloat16 --quantise nf4" in serving
    assert [line for line in notes if line.startswith("srun --exact --ntasks=1 --gpus=1")] == [
        line for line in notes if line.startswith("srun")
    ]
    assert sum(line.startswith("srun") for line in notes) == 2
    assert sum(line.startswith("apptainer exec --nv lookact.sif") for line in notes) == 2
    started = trainings(notes)
    assert len(started) == 3
    assert all(notes.index(line) > notes.index("up") for line in started)
    for seed in "012":
        (line,) = [line for line in started if f"--seed {seed} " in line]
        assert "pref-sac --preset full --env.task drawer-open-v3 --judge.kind server" in line
        assert f"--name drawer-open-v3-seed{seed} --out {cluster['OUT']} --auto-resume" in line
        assert line.endswith(f"| port {port} artifacts /scratch gl egl")
    assert not listens(port)


def test_the_task_may_be_named_as_in_rl_vlm_f(cluster):
    """By TASK_ENV; TASK, where it is set, comes first."""
    for named, task in (({}, "metaworld_drawer-open-v2"), ({"TASK": "soccer-v3"}, "soccer-v3")):
        Path(cluster["NOTES"]).unlink(missing_ok=True)
        done, notes = submit(cluster, TASK_ENV="metaworld_drawer-open-v2", **named)
        assert done.returncode == 0, done.stdout + done.stderr
        (line,) = trainings(notes)
        assert f"--env.task {task} " in line
        assert f"--name {task}-seed0 " in line


@pytest.mark.slow
def test_the_job_trains_the_task_of_task_env_by_the_real_command_line(cluster):
    env = "--env.horizon 4 --learn.episodes 2 --learn.random_episodes 1 --learn.batch_size 8 --learn.hidden 16"
    quick = f"--device cpu --reward true {env} --evaluation.final_episodes 1 --evaluation.episodes 1"
    done, _ = submit(cluster, TASK_ENV="metaworld_drawer-open-v2", REAL=sys.executable, SETTINGS=quick)
    run = Path(cluster["OUT"]) / "pref-sac" / "metaworld_drawer-open-v2-seed0"
    log = (run.parent.parent / f"{run.name}.log").read_text()
    assert done.returncode == 0, log
    assert yaml.safe_load((run / "config.yaml").read_text())["env"]["task"] == "metaworld_drawer-open-v2"
    assert "metaworld_drawer-open-v2 is run as drawer-open-v3" in log
    assert json.loads((run / "result.json").read_text())["agent"]["episodes"] == 1


def test_without_a_container_the_commands_run_as_they_are(cluster):
    done, notes = submit(cluster, IMAGE="", SETTINGS="--learn.gradient_steps 7")
    assert done.returncode == 0
    assert not any(line.startswith("apptainer") for line in notes)
    assert "--learn.gradient_steps 7" in trainings(notes)[0]


def test_a_server_that_does_not_come_up_stops_the_job_at_once(cluster):
    done, notes = submit(cluster, BROKEN="1")
    assert done.returncode == 1
    assert "the server ended before it was up" in done.stderr
    assert not trainings(notes)
    assert "no such model" in next(Path(cluster["OUT"]).glob("server-*.log")).read_text()


def test_one_failed_run_fails_the_job_but_not_the_others(cluster):
    done, notes = submit(cluster, SEEDS="0 1", FAILING="0")
    assert done.returncode == 1
    assert len(trainings(notes)) == 2
    assert not listens(cluster["SERVER_PORT"])


def test_jobs_of_other_numbers_use_other_ports(cluster):
    del cluster["SERVER_PORT"]
    ports = set()
    for job in ("71001", "71002"):
        _, notes = submit(cluster, SLURM_JOB_ID=job, BROKEN="1")
        ports |= {line.split("--port ")[1].split()[0] for line in notes if line.startswith("lookact serve")}
    assert ports == {"8001", "8002"}


def test_a_signal_ends_runs_and_server(cluster):
    process = subprocess.Popen(["bash", str(JOB)], env=cluster | {"SLOW": "1"}, start_new_session=True)
    notes = Path(cluster["NOTES"])
    deadline = time.monotonic() + SECONDS
    while not (notes.exists() and trainings(notes.read_text().splitlines())):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == 143
    while listens(cluster["SERVER_PORT"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    left = subprocess.run(["ps", "-o", "pid=", "-g", str(process.pid)], capture_output=True, text=True).stdout
    assert not left.strip()
