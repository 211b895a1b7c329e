"""What is learned on FrozenLake, MiniGrid and the outsider's red square: runs one after another, each with a record.

python -m benchmarks.grid_learning [NAME ...] runs what has no record in benchmarks/grid yet, of all or of these;
OMP_NUM_THREADS=1 keeps it to one core; those from the general model need lookact pretrain before. --table prints them.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lookact.cli import main as lookact
from lookact.envs.wrappers.gym_chat import GymChat
from lookact.rollout.collect import collect
from lookact.tasks.grid import frozen_lake_task, minigrid_task
from lookact.tasks.gym_task import GymTask, reply
from lookact.tasks.settings import FrozenLakeConfig, MiniGridConfig
from lookact.types import Decision, Observation

RECORDS, RUNS = Path("benchmarks/grid"), Path("runs/grid")
SEEDS, FRESH = (0, 1, 2), (3, 4, 5)
"""Seeds of every run, and those that were met only after the settings of `FROZEN` had been committed."""
EPISODES = ("--evaluation.final_episodes", "200", "--evaluation.every", "1000")
TASKS = {
    "fixed-map": ("--task", "frozen-lake", "--env.layout", "4x4", "--env.random_start", "true"),
    "random-maps": ("--task", "frozen-lake"),
    "doorkey": ("--task", "minigrid"),
    "red-square": (
        *("--task", "examples/own_task/where_is_red.py:TASK"),
        *("--sampling.max_tokens", "16", "--sampling.min_action_tokens", "1"),
    ),
}
FROM_START = ("--vision_pretraining.rooms", "0", "--sft.demonstrations", "0")
BLIND = ("--env.blind", "true")


@dataclass(frozen=True)
class Experiment:
    """A recipe on a task, by its preset small and these settings, from its own start or from another's."""

    name: str
    recipe: str
    task: str
    words: tuple[str, ...] = ()
    start: str = ""
    """The experiment after whose SFT it begins, of the same seed."""
    seeds: tuple[int, ...] = SEEDS


def record_name(name: str, seed: int) -> Path:
    return RECORDS / f"{name}-seed-{seed}.json"


def run_folder(experiment: Experiment, seed: int) -> Path:
    recipe = {"rloo": "nav-rloo", "ppo": "vqa-ppo"}[experiment.recipe]
    return RUNS / recipe / f"{experiment.name}-seed-{seed}"


def command(experiment: Experiment, seed: int) -> list[str]:
    """The words after `lookact`."""
    words = ["train", experiment.recipe, *TASKS[experiment.task], "--preset", "small", *EPISODES]
    if experiment.start:
        began = next(other for other in EXPERIMENTS if other.name == experiment.start)
        words += ["--model.source", str(run_folder(began, seed) / "sft"), *FROM_START]
    name = f"{experiment.name}-seed-{seed}"
    return [*words, *experiment.words, "--seed", str(seed), "--out", "runs/grid", "--name", name]


def main(names: Sequence[str] = ()) -> None:
    """Those of these names, or all."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    if not (RECORDS / "yardsticks.json").exists():
        (RECORDS / "yardsticks.json").write_text(json.dumps(yardsticks(), indent=1) + "\n")
    # seed by seed, so that the first of all tasks are there first
    for seed in (*SEEDS, *FRESH):
        for experiment in EXPERIMENTS:
            seeds = (*experiment.seeds, *(FRESH if experiment.name in FROZEN else ()))
            wanted = seed in seeds and (not names or experiment.name in names)
            if wanted and not record_name(experiment.name, seed).exists():
                write_record(experiment, seed)


def write_record(experiment: Experiment, seed: int) -> None:
    """Run it in this process, whose CPU time tells what it took on however busy a machine, and keep what it came to."""
    words, folder = command(experiment, seed), run_folder(experiment, seed)
    used, began = time.process_time(), time.perf_counter()
    if lookact([*words, "--auto-resume"]):
        raise SystemExit(f"{experiment.name}, seed {seed}: failed")
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    kept = {
        "experiment": experiment.name,
        "recipe": experiment.recipe,
        "task": experiment.task,
        "seed": seed,
        "command": "lookact " + shlex.join(words),
        "commit": json.loads((folder / "versions.json").read_text())["commit"],
        "cpu_seconds": round(time.process_time() - used, 1),
        "clock_seconds": round(time.perf_counter() - began, 1),
        "before": result["before"],
        "after": result["after"],
    }
    record_name(experiment.name, seed).write_text(json.dumps(kept, indent=1) + "\n")


def yardsticks() -> dict[str, dict[str, dict[str, Any]]]:
    """The random policy and the expert on each task's held-out starts, over those of all seeds."""
    tasks = {
        "fixed-map": frozen_lake_task(FrozenLakeConfig(layout="4x4", random_start=True)),
        "random-maps": frozen_lake_task(FrozenLakeConfig()),
        "doorkey": minigrid_task(MiniGridConfig()),
    }
    told = {}
    for name, task in tasks.items():
        specs = [spec for seed in SEEDS for spec in task.specs(seed, "test", groups=int(EPISODES[1]))]
        envs = [task.make_env() for _ in range(16)]
        starts = {task.layout(spec.options["start_seed"] % 2**31) for spec in specs} if task.layout else ()
        told[name] = {
            "random": task.report(collect(specs, envs, task.random_actor())),
            "expert": task.report(collect(specs, envs, Expert(task, envs))),
            "layouts": {"held_out": len(starts)},
        }
    return told


class Expert:
    """Acts by the task's own expert: row i in envs[i]."""

    version = 0

    def __init__(self, task: GymTask, envs: Sequence[GymChat]) -> None:
        self.task, self.envs = task, envs

    def begin(self, row: int, seed: int) -> None:
        pass

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> list[Decision]:
        assert self.task.expert is not None
        plans = [self.task.expert(self.envs[row].env) for row in rows]
        nothing = np.zeros(0, dtype=np.float32)
        return [Decision(reply((plan or ["left"])[0]), nothing, nothing.astype(bool)) for plan in plans]

    def end(self, row: int) -> None:
        pass


def sft(rooms: int, demonstrations: int, *, epochs: int = 3, passes: int = 4) -> tuple[str, ...]:
    """Vision pretraining on frames of `rooms` starts, `passes` over them, then SFT."""
    return (
        *("--vision_pretraining.rooms", str(rooms), "--vision_pretraining.epochs", str(passes)),
        *("--sft.demonstrations", str(demonstrations), "--sft.epochs", str(epochs), "--sft.lr", "2e-3"),
    )


def rloo(iterations: int, *, groups: int = 16) -> tuple[str, ...]:
    return (
        *("--learn.iterations", str(iterations), "--learn.groups", str(groups), "--learn.group_size", "6"),
        *("--learn.credit", "anchor", "--learn.gamma", "0.95", "--learn.lr", "4e-4", "--learn.epochs", "4"),
        *("--learn.negative_advantage_weight", "1"),
    )


def ppo(iterations: int, *, episodes: int = 96) -> tuple[str, ...]:
    return (
        *("--learn.iterations", str(iterations), "--learn.episodes", str(episodes), "--learn.lr", "3e-4"),
        *("--critic.coef", "0.1", "--credit.gamma_turn", "0.95"),
    )


NO_RL = ("--learn.iterations", "0")
ALONE = (*FROM_START, "--reward_functions", "lookact.rewards.functions:invalid_action*0.1")
"""No label and no demonstration: that a reply is no action costs a tenth of the reward."""
GENERAL = ("--model.source", "general-tiny")
SMOLVLM = ("--model.family", "smolvlm")
LAKE, DOORKEY = sft(500, 1000, passes=10), sft(1200, 1200, epochs=4)
LITTLE, FEW = sft(100, 100, epochs=4, passes=10), sft(0, 200, epochs=4)
UNLABELLED = ("--env.labels", "false")
EXPERIMENTS = (
    Experiment("random-maps-sft", "rloo", "random-maps", (*LAKE, *NO_RL)),
    Experiment("random-maps-sft-ppo", "ppo", "random-maps", ppo(10), start="random-maps-sft"),
    Experiment("random-maps-sft-rloo", "rloo", "random-maps", rloo(10), start="random-maps-sft"),
    Experiment("random-maps-few", "rloo", "random-maps", (*sft(500, 250, epochs=4, passes=10), *NO_RL)),
    Experiment("random-maps-ppo", "ppo", "random-maps", ppo(20), start="random-maps-few"),
    Experiment("random-maps-rloo", "rloo", "random-maps", rloo(20), start="random-maps-few"),
    Experiment("fixed-map-many-ppo", "ppo", "fixed-map", (*sft(150, 600, passes=10), *ppo(10))),
    Experiment("fixed-map-many-rloo", "rloo", "fixed-map", (*sft(150, 600, passes=10), *rloo(10))),
    Experiment("fixed-map-sft", "rloo", "fixed-map", (*LITTLE, *NO_RL)),
    Experiment("fixed-map-ppo", "ppo", "fixed-map", ppo(10), start="fixed-map-sft"),
    Experiment("fixed-map-rloo", "rloo", "fixed-map", rloo(10), start="fixed-map-sft"),
    Experiment("red-square-rloo", "rloo", "red-square", (*FEW, *rloo(10))),
    Experiment("red-square-ppo", "ppo", "red-square", (*FEW, *ppo(10))),
    Experiment("red-square-alone", "rloo", "red-square", (*ALONE, *rloo(40))),
    Experiment("red-square-alone-general", "rloo", "red-square", (*ALONE, *GENERAL, *rloo(40))),
    # another architecture under the same settings
    Experiment("red-square-rloo-smolvlm", "rloo", "red-square", (*SMOLVLM, *FEW, *rloo(10))),
    Experiment("red-square-alone-smolvlm", "rloo", "red-square", (*SMOLVLM, *ALONE, *rloo(40))),
    Experiment("random-maps-smolvlm", "rloo", "random-maps", (*SMOLVLM, *LAKE, *rloo(10))),
    Experiment("doorkey-sft", "rloo", "doorkey", (*DOORKEY, *NO_RL)),
    Experiment("doorkey-ppo", "ppo", "doorkey", ppo(20), start="doorkey-sft"),
    Experiment("doorkey-rloo", "rloo", "doorkey", rloo(20), start="doorkey-sft"),
    # more of everything, within the same 15 minutes
    Experiment("fixed-map-long-sft", "rloo", "fixed-map", (*sft(600, 1200, passes=10), *NO_RL)),
    Experiment("fixed-map-long-ppo", "ppo", "fixed-map", ppo(10), start="fixed-map-long-sft"),
    Experiment("fixed-map-long-rloo", "rloo", "fixed-map", rloo(10), start="fixed-map-long-sft"),
    Experiment("random-maps-long-sft", "rloo", "random-maps", (*sft(1000, 2000, passes=10), *NO_RL)),
    Experiment("random-maps-long-ppo", "ppo", "random-maps", ppo(30), start="random-maps-long-sft"),
    Experiment("random-maps-long-rloo", "rloo", "random-maps", rloo(30), start="random-maps-long-sft"),
    Experiment("doorkey-long-ppo", "ppo", "doorkey", ppo(60), start="doorkey-sft"),
    Experiment("doorkey-long-rloo", "rloo", "doorkey", rloo(40), start="doorkey-sft"),
    # black pictures have nothing to pretrain vision on
    Experiment("random-maps-blind", "rloo", "random-maps", (*BLIND, *sft(0, 1000), *NO_RL)),
    Experiment("random-maps-unlabelled", "rloo", "random-maps", (*UNLABELLED, *LAKE, *NO_RL), seeds=(0,)),
    Experiment("random-maps-no-pretraining", "rloo", "random-maps", (*sft(0, 1000), *NO_RL), seeds=(0,)),
    Experiment("fixed-map-blind", "ppo", "fixed-map", (*BLIND, *sft(0, 600), *ppo(10))),
    Experiment("doorkey-blind", "rloo", "doorkey", (*BLIND, *sft(0, 1200, epochs=4), *NO_RL), seeds=(0,)),
    Experiment("fixed-map-alone", "rloo", "fixed-map", (*ALONE, *rloo(40)), seeds=(0,)),
    Experiment("random-maps-alone", "rloo", "random-maps", (*ALONE, *rloo(40)), seeds=(0,)),
    Experiment("doorkey-alone", "rloo", "doorkey", (*ALONE, *rloo(5)), seeds=(0,)),
)
FROZEN = (
    *("random-maps-long-sft", "random-maps-long-ppo", "random-maps-long-rloo"),
    *("fixed-map-long-sft", "doorkey-sft", "doorkey-long-ppo", "doorkey-rloo"),
)


def table(seeds: Sequence[int]) -> str:
    """The records in Markdown: greedy success on held-out starts before and after RL, each with its 95% interval."""
    lines = [f"| run | {' | '.join(f'seed {seed}' for seed in seeds)} | CPU seconds |", "|---|---|---|---|---|"]
    for experiment in EXPERIMENTS:
        paths = [record_name(experiment.name, seed) for seed in seeds]
        records = [json.loads(path.read_text()) if path.exists() else None for path in paths]
        if any(records):
            seconds = " / ".join(f"{record['cpu_seconds']:.0f}" for record in records if record)
            lines.append(f"| `{experiment.name}` | {' | '.join(map(cell, records))} | {seconds} |")
    return "\n".join(lines)


def cell(record: dict[str, Any] | None) -> str:
    if record is None:
        return "–"
    before, after = (percent(record[when]["greedy"]) for when in ("before", "after"))
    return after if NO_RL[0] + " 0" in record["command"] else f"{before} → **{after}**"


def percent(report: dict[str, Any]) -> str:
    low, high = report["ci"]["success_rate"]
    return f"{100 * report['success_rate']:.0f}% [{100 * low:.0f}, {100 * high:.0f}]"


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        sys.stdout.write(f"{table(FRESH)}\n\n{table(SEEDS)}\n")
    else:
        main(sys.argv[1:])
