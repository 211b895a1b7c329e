"""A nav-rloo run killed at any moment, or shared by two processes, comes to the same end as one that was neither."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from safetensors.torch import load_file

from lookact.algorithms.vlm_settings import SFT, VisionPretraining
from lookact.config import save_config
from lookact.data.episode_store import EpisodeStore
from lookact.recipes.rloo.train import main

pytestmark = pytest.mark.slow


def told(folder):
    """Every step's numbers but the seconds, which no two runs share."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if not name.startswith("time/")} for line in lines]


def outcome(folder, step):
    """Weights to the last bit, all metrics, and which step was best."""
    saved = load_file(folder / f"checkpoint-{step}/model.safetensors")
    best = json.loads((folder / "best/manifest.json").read_text())["step"]
    return {name: tensor.numpy().tobytes() for name, tensor in saved.items()}, told(folder), best


def killed(work, when, delay):
    """Run `work` in a fork that kills itself `delay` seconds after `when` is true; False if it ended before."""

    def watch():
        while not when():
            time.sleep(0.002)
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        # a thread of its own: on a busy machine the killer is as slow as its victim
        threading.Thread(target=watch, daemon=True).start()
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_a_run_killed_again_and_again_ends_like_an_unbroken_one(nav_started, train, tmp_path, kept_in):
    cfg = replace(
        nav_started,
        vision_pretraining=VisionPretraining(rooms=3, epochs=1),
        sft=SFT(demonstrations=6, epochs=2, batch_size=3),
        learn=replace(nav_started.learn, iterations=5, epochs=2),
        kl=replace(nav_started.kl, reference="ema", target=0.01, horizon=80),
        evaluation=replace(nav_started.evaluation, every=2, final_episodes=3),
    )
    whole = train(main, cfg, "unbroken")
    folder = tmp_path / "broken"
    begun = [
        folder / "config.yaml",
        folder / "sft/vision_pretraining.jsonl",
        folder / "sft/sft.jsonl",
        folder / "sft/model.safetensors",
        # after the supervised start, before any checkpoint
        folder / "sft/metrics.json",
        folder / "metrics.jsonl",
        folder / "checkpoint-2",
        folder / "checkpoint-2",
        folder / "checkpoint-4",
    ]
    dice = random.Random(0)
    kills = sum(
        killed(lambda: train(main, cfg, "broken", resume=True), path.exists, dice.choice((0.0, dice.uniform(0, 0.3))))
        for path in begun
    )
    assert kills >= 7
    ended = train(main, cfg, "broken", resume=True)
    assert outcome(folder, 5) == outcome(tmp_path / "unbroken", 5)
    assert (ended["before"], ended["after"]) == (whole["before"], whole["after"])
    assert kept_in(folder) == kept_in(tmp_path / "unbroken")
    assert set(kept_in(folder)) == {
        *("before-greedy", "before-sampled", "step-000002", "step-000004", "step-000005"),
        *("after-greedy", "after-sampled"),
    }


PROCESS = """
import sys
from pathlib import Path
import torch
from lookact.recipes.rloo.train import Config, main
from lookact.config import load_config, to_mapping
from lookact.training.distributed import close_distributed, init_distributed
from lookact.training.run import open_run

torch.set_num_threads(1)
init_distributed()
out = Path(sys.argv[1])
cfg = load_config(Config, out / "asked.yaml")
with open_run(out / "two", to_mapping(cfg), tensorboard=False) as run:
    main(cfg, run)
close_distributed()
"""


def test_two_processes_learn_what_one_does(nav_started, train, tmp_path, kept_in):
    cfg = replace(
        nav_started,
        vision_pretraining=VisionPretraining(rooms=2, epochs=1),
        sft=SFT(demonstrations=4, epochs=1, batch_size=4, lr=1e-4),
        learn=replace(nav_started.learn, groups=3),
        evaluation=replace(nav_started.evaluation, episodes=3),
    )
    train(main, cfg, "one")
    save_config(cfg, tmp_path / "asked.yaml")
    (tmp_path / "two.py").write_text(PROCESS)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([*torchrun, tmp_path / "two.py", tmp_path], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-6000:]
    # two processes keep the same starts as one
    assert kept_in(tmp_path / "one").keys() == kept_in(tmp_path / "two").keys()
    ids = [EpisodeStore(tmp_path / name / "episodes/step-000002").ids() for name in ("one", "two")]
    assert ids[0] == ids[1] == {f"validate-00000-{number:04d}-00" for number in range(3)}
    for phase in ("vision_pretraining", "sft"):
        one, two = ((tmp_path / name / f"sft/{phase}.jsonl").read_text() for name in ("one", "two"))
        assert_close(*(list(map(json.loads, text.splitlines())) for text in (one, two)))
    one, two = told(tmp_path / "one"), told(tmp_path / "two")
    assert len(one) == 2
    assert sum(line["optim/grad_norm"] for line in one) > 0
    # how actions were found is told by each process for itself, and the largest gap is rounding
    shared = [
        name for name in one[0] if "/mask_" not in name and name not in ("rollout/dropout_rate", "policy/parity_gap")
    ]
    assert_close(
        [{name: line[name] for name in shared} for line in one], [{n: line[n] for n in shared} for line in two]
    )


def assert_close(one, two):
    assert len(one) == len(two)
    for a, b in zip(one, two):
        assert a == pytest.approx(b, rel=1e-4, abs=1e-5)
