"""A toy run killed again and again, at any moment, ends bit for bit as one that never was."""

import json
import os
import random
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from lookact.seeding import torch_rng
from lookact.training.optim import NonFiniteGuard, accumulate, build_adamw, clip_and_step, set_learning_rate
from lookact.training.run import open_run

SEED = 7


class Coefficient:
    """A number that every step depends on and changes, as an adaptive KL coefficient does."""

    def __init__(self) -> None:
        self.value = 0.1

    def state_dict(self) -> dict[str, float]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.value = state["value"]


def train(folder: Path, total: int, tell: Callable[[int], None] = lambda step: None) -> None:
    """Small, but with all that a run must not forget: optimiser, schedule, skipped steps, counters, global streams."""
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - the global stream is what is tested
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))
    optimizer = build_adamw({"model": model}, lr=1e-2, weight_decay=0.01)
    guard, coefficient = NonFiniteGuard(limit=3), Coefficient()
    parts = {
        "weights": {"model": model},
        "state": {"optimizer": optimizer, "guard": guard, "coefficient": coefficient},
    }
    with open_run(folder, {"seed": SEED, "total": total}, auto_resume=True, tensorboard=False) as run:
        run.restore(**parts)
        for step in run.steps(total):
            shift = random.random() + np.random.normal()  # noqa: NPY002
            x = torch.randn(8, 6, generator=torch_rng(SEED, "data", step)) + shift
            target = x.sum(1, keepdim=True) * (float("nan") if step % 11 == 5 else 1.0)
            rate = set_learning_rate(optimizer, step, warmup=5, total=total, schedule="cosine")

            def loss_fn(rows, x=x, target=target):
                loss = (model(x[rows]) - target[rows]).square().mean() * (1 + coefficient.value)
                return loss, {"loss/total": loss.detach()}

            loss, metrics = accumulate([slice(0, 3), slice(3, 8)], loss_fn, lambda rows: rows.stop - rows.start)
            metrics |= rate | clip_and_step(optimizer, model.parameters(), max_norm=1.0, guard=guard, loss=loss)
            coefficient.value *= 1.01 if metrics["optim/grad_norm"] > 1 else 0.99
            metrics |= {"policy/coefficient": coefficient.value, "time/now": time.time()}
            run.log(metrics, step)
            if step % 2 == 0:
                run.save(step, **parts, metrics=metrics, keep=2, best=("loss/total", "min"))
            tell(step)


def spawn(work: Callable[[], None]) -> int:
    """Run `work` in a fork of this warm process, which costs no import of torch."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def train_alone(folder: Path, total: int) -> None:
    """Unbroken, in a process without threads that earlier tests may have left: they could draw from global streams."""
    assert os.waitstatus_to_exitcode(os.waitpid(spawn(lambda: train(folder, total)), 0)[1]) == 0


def outcome(folder: Path, total: int) -> tuple[dict[str, bytes], list[dict], dict, list[str]]:
    """Weights and metrics to the last bit, the best step, and the checkpoints left; the clock is left out."""
    weights = {
        name: t.numpy().tobytes() for name, t in load_file(folder / f"checkpoint-{total}/model.safetensors").items()
    }
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    metrics = [{key: value for key, value in line.items() if not key.startswith("time/")} for line in lines]
    best = json.loads((folder / "best/manifest.json").read_text())
    best = (best["step"], load_file(folder / "best/model.safetensors")["0.weight"].numpy().tobytes())
    return weights, metrics, best, sorted(path.name for path in folder.glob("*checkpoint*"))


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_like_an_unbroken_one(tmp_path):
    total = 100
    train_alone(tmp_path / "unbroken", total)
    dice = random.Random(3)
    for _ in range(10):
        allowed, allow = os.pipe()

        def work(allowed=allowed, allow=allow):
            os.close(allow)
            # a step at a time, and one more than was allowed: it is killed somewhere in that one
            train(tmp_path / "broken", total, lambda step: os.read(allowed, 1))

        child = spawn(work)
        os.write(allow, b"." * dice.randint(1, 9))
        while select.select([allowed], [], [], 0)[0]:
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
            time.sleep(0.002)
        time.sleep(dice.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        os.close(allowed)
        os.close(allow)
    train_alone(tmp_path / "broken", total)
    assert outcome(tmp_path / "broken", total) == outcome(tmp_path / "unbroken", total)


@pytest.mark.slow
def test_a_run_killed_at_each_durable_write_ends_like_an_unbroken_one(tmp_path):
    total = 4
    train_alone(tmp_path / "unbroken", total)
    expected = outcome(tmp_path / "unbroken", total)

    def train_until_write(folder: Path, number: int) -> None:
        left = [number]

        def deadly(function):
            def call(*args, **kwargs):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **kwargs)

            return call

        for name in ("fsync", "rename", "replace", "link", "rmdir", "mkdir"):
            setattr(os, name, deadly(getattr(os, name)))
        train(folder, total)

    finished, number = False, 0
    while not finished:
        number += 1
        folder = tmp_path / f"broken-{number}"
        child = spawn(lambda folder=folder, number=number: train_until_write(folder, number))
        finished = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        train_alone(folder, total)
        assert outcome(folder, total) == expected, f"killed at durable call {number}"
    assert number > 50
