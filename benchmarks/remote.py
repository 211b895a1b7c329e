"""A learning step whose environments are on an environment server, beside one with the environments in process."""

from __future__ import annotations

import atexit
import itertools
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks.nav_rollout import count
from benchmarks.nav_update import credited, learn
from benchmarks.report import Aim, plain, timed_row
from benchmarks.timing import CPU, WALL, Facts, Work, race
from benchmarks.walks import Load, make_checkpoint, open_checkpoint
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.tasks.registry import find_task, make_task
from lookact.training.optim import NonFiniteGuard, build_adamw, clip_and_step

AIM = Aim(1.3, at_least=False)
ENVIRONMENTS = 16


def main(*, load: Load | None = None, repetitions: int = 5) -> dict[str, Any]:
    """A step of nav-rloo with 16 environments: rollouts, credit and update."""
    load = load or Load(groups=ENVIRONMENTS // 8, size=8)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_checkpoint(folder, load)
        ways = {"ours": (in_process, (folder, load)), "against": (on_server, (folder, load))}
        times = race(ways, repetitions=repetitions)
    row = timed_row(f"nav-rloo's step, {load.environments} environments in process / on a server", times, AIM)
    return plain(
        [row],
        about=f"environments on a server on this machine: {load.turns} turns, {load.image_size}x{load.image_size} "
        "pictures with depth, a tiny Qwen3-VL that acts",
        notes=[
            "the second side's time is the CPU time of the run and of the server together, as if nothing of it "
            "overlapped; ratio = with the server over without",
            "both sides run the same episodes (tests/benchmarks/test_remote.py)",
        ],
    )


def in_process(folder: Path, load: Load) -> Work:
    """The environments beside the policy."""
    return _rollout(folder, load, "navigation", [])


def on_server(folder: Path, load: Load) -> Work:
    """The environments in a process of their own."""
    words = ["--env.image_size", str(load.image_size), "--env.max_turns", str(load.turns)]
    command = [sys.executable, "-m", "lookact", "env-server", "--task", "navigation", "--port", "0", *words]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    atexit.register(server.kill)
    assert server.stdout is not None
    found = re.search(r"http://\S+", server.stdout.readline())
    assert found is not None
    return _rollout(folder, load, found[0], [psutil.Process(server.pid)])


def _rollout(folder: Path, load: Load, task_name: str, servers: list[psutil.Process]) -> Work:
    settings = find_task(task_name)
    own = {} if servers else {"image_size": load.image_size, "max_turns": load.turns}
    task = make_task(settings(**own), load.seed)
    chat = open_checkpoint(folder)
    actor, optimizer, guard = HFSampler(chat, load.sampling), build_adamw({"policy": chat}, lr=1e-9), NonFiniteGuard()
    envs = [task.make_env() for _ in range(load.environments)]
    steps = itertools.count()

    def cpu() -> float:
        return time.process_time() + sum(sum(server.cpu_times()[:2]) for server in servers)

    def work() -> Facts:
        # new rooms every time, as in training
        specs = task.specs(load.seed, "train", groups=load.groups, group_size=load.size, step=next(steps))
        start, wall = cpu(), time.perf_counter()
        episodes = collect(specs, envs, actor)
        rollout = cpu() - start
        loss = learn(chat, credited(episodes), load)
        clip_and_step(optimizer, chat.parameters(), max_norm=1.0, guard=guard, loss=loss)
        times = {CPU: cpu() - start, WALL: time.perf_counter() - wall}
        return {**count(episodes), "rollout_cpu_seconds": rollout, **times}

    return work
