"""What foresight and memory are worth to world-duel's task policy: runs one after another, each with a record.

python -m benchmarks.duel_learning [NAME ...] runs what has no record in benchmarks/world-duel/task yet, of all or of
these; OMP_NUM_THREADS=1 keeps it to one core. --table prints the records. Settings were chosen on seed 10.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.grid_learning import percent
from lookact.cli import main as lookact
from lookact.envs.tabletop import experts
from lookact.envs.testbeds.memory_curtain import MemoryCurtain
from lookact.recipes.world_duel.config import EnvConfig
from lookact.recipes.world_duel.f1.environments import env_maker
from lookact.seeding import derive, numpy_rng
from lookact.training.evaluation import make_report

RECORDS, RUNS = Path("benchmarks/world-duel/task"), Path("runs/duel")
SEEDS = (0, 1, 2)
EPISODES = 192
"""Held-out starts that a greedy policy is measured on."""
SHARED = ("episodes", "warm_start")
"""What runs of the same task and seed have in common: demonstrations, and the tokenizer fitted on them."""
PLAIN = (
    *("--env.appearance", "false", "--env.background", "false", "--env.light", "false"),
    *("--env.clutter", "false", "--env.distractors", "0"),
)
COMMON = ("--phase", "task", "--model.ensemble_size", "1", "--evaluation.per_phase", "1")
REACH = ("--env.control", "ee_delta", "--env.steps_per_episode", "16", *PLAIN)
CURTAIN = (
    *("--env.name", "memory_curtain", "--env.steps_per_episode", "6", "--env.image_size", "16"),
    *("--tokenizer.scales", "1,2", "--tokenizer.codebook_size", "16", "--tokenizer.latent_dim", "8"),
    *("--tokenizer.width", "16", "--model.width", "32", "--model.layers", "1"),
    *("--task_phase.bc.batch_size", "64", "--task_phase.bc.lr", "5e-3"),
)
TASKS: dict[str, tuple[EnvConfig, tuple[str, ...]]] = {
    "reach": (
        EnvConfig(
            control="ee_delta",
            steps_per_episode=16,
            distractors=0,
            appearance=False,
            background=False,
            light=False,
            clutter=False,
        ),
        REACH,
    ),
    "curtain": (EnvConfig(name="memory_curtain", steps_per_episode=6, image_size=16), CURTAIN),
}
"""Each task's environment, as a config and as words."""


@dataclass(frozen=True)
class Experiment:
    """A run of phase task by these settings."""

    name: str
    task: str
    words: tuple[str, ...] = ()
    start: str = ""
    """The experiment from whose policy it goes on."""


def record_path(name: str, seed: int) -> Path:
    return RECORDS / f"{name}-seed-{seed}.json"


def run_folder(name: str, seed: int) -> Path:
    return RUNS / "world-duel" / f"{name}-seed-{seed}"


def command(experiment: Experiment, seed: int) -> list[str]:
    """The words after `lookact`."""
    words = ["train", "world-duel", *COMMON, *TASKS[experiment.task][1], "--task_phase.episodes", str(EPISODES)]
    if experiment.start:
        last = max(run_folder(experiment.start, seed).glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
        words += ["--teacher_path", str(last), "--student_path", str(last)]
    name = f"{experiment.name}-seed-{seed}"
    return [*words, *experiment.words, "--seed", str(seed), "--out", str(RUNS), "--name", name]


def main(names: Sequence[str] = (), seeds: Sequence[int] = SEEDS) -> None:
    """Those of these names, or all, seed by seed."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for experiment in EXPERIMENTS:
            wanted = not names or experiment.name in names
            if wanted and not record_path(experiment.name, seed).exists():
                write_record(experiment, seed)
        path = record_path("yardsticks", seed)
        if not path.exists():
            path.write_text(json.dumps({task: yardsticks(task, seed) for task in TASKS}, indent=1) + "\n")


def write_record(experiment: Experiment, seed: int) -> None:
    """Run it in this process, whose CPU time tells what it took on however busy a machine, and keep what it came to."""
    words, folder = command(experiment, seed), run_folder(experiment.name, seed)
    share(experiment, seed, folder)
    used = time.process_time()
    if lookact([*words, "--auto-resume"]):
        raise SystemExit(f"{experiment.name}, seed {seed}: failed")
    kept = {
        "experiment": experiment.name,
        "task": experiment.task,
        "seed": seed,
        "command": "lookact " + shlex.join(words),
        "commit": json.loads((folder / "versions.json").read_text())["commit"],
        "cpu_seconds": round(time.process_time() - used, 1),
        **json.loads((folder / "reports.json").read_text()),
    }
    record_path(experiment.name, seed).write_text(json.dumps(kept, indent=1) + "\n")


def share(experiment: Experiment, seed: int, folder: Path) -> None:
    """Demonstrations and tokenizer of another run of the same task and seed, which would come out alike."""
    for other in EXPERIMENTS:
        source = run_folder(other.name, seed)
        alike = other.task == experiment.task and demonstrations(other) == demonstrations(experiment)
        if alike and not folder.exists() and all((source / part).exists() for part in SHARED):
            for part in SHARED:
                shutil.copytree(source / part, folder / part)


def demonstrations(experiment: Experiment) -> list[tuple[str, str]]:
    """The settings that recording and tokenizer depend on."""
    pairs = zip(experiment.words[::2], experiment.words[1::2])
    return sorted((name, value) for name, value in pairs if name.startswith(("--tokenizer", "--task_phase.bc.ep")))


def yardsticks(task: str, seed: int) -> dict[str, Any]:
    """Uniformly random actions, and the expert's own, from as many held-out starts."""
    config, _ = TASKS[task]
    env, found = env_maker(config, "reach")(), dict[str, Any]()
    expert: Any = MemoryCurtain.expert_action if task == "curtain" else experts.expert_action
    for name in ("random", "expert"):
        success: list[float] = []
        for number in range(EPISODES):
            start = derive(seed, "yardstick", number)
            rng, _ = numpy_rng(start, "actions"), env.reset(seed=start)
            act: Any = partial(expert, env) if name == "expert" else partial(uniform, rng, config.shapes.action_size)
            over = False
            while not over:
                _, _, terminated, truncated, _ = env.step(act())
                over = terminated or truncated
            success.append(float(terminated))
        found[name] = make_report({"success_rate": np.array(success)}, rates=("success_rate",)).plain()
    env.close()
    return found


def uniform(rng: np.random.Generator, size: int) -> Any:
    return rng.uniform(-1, 1, size).astype(np.float32)


def clone(updates: int, episodes: int, *, tokens: int = 300) -> tuple[str, ...]:
    """Behaviour cloning of so many updates on so many demonstrations."""
    return (
        *("--task_phase.bc.iterations", str(updates), "--task_phase.bc.episodes", str(episodes)),
        *("--tokenizer.gradient_steps", str(tokens)),
    )


def ppo(iterations: int) -> tuple[str, ...]:
    """PPO by the task's own reward after cloning, 32 episodes or more an iteration."""
    return ("--task_phase.iterations", str(iterations), "--env.num_envs", "32", "--task_phase.ppo.minibatch", "256")


GENTLE = ("--task_phase.std", "0.1", "--task_phase.critic_warmup", "8", "--task_phase.lr", "1e-4")
"""Sampled actions close to the greedy ones, a critic that knows them, small steps."""
TO_CLONE = ("--task_phase.ppo.kl_coef", "0.1")
FORESIGHT, NO_MEMORY = ("--model.foresight", "true"), ("--model.memory", "0")
REACH_CLONE, LONG_CLONE, CURTAIN_CLONE = clone(250, 300), clone(700, 600), clone(400, 512)
EXPERIMENTS = (
    Experiment("reach-plain", "reach", REACH_CLONE),
    Experiment("reach-foresight", "reach", (*REACH_CLONE, *FORESIGHT)),
    Experiment("reach-long-plain", "reach", LONG_CLONE),
    Experiment("reach-long-foresight", "reach", (*LONG_CLONE, *FORESIGHT)),
    Experiment("reach-plain-ppo", "reach", (*clone(0, 300), *ppo(20)), start="reach-plain"),
    Experiment("reach-plain-ppo-gentle", "reach", (*clone(0, 300), *ppo(40), *GENTLE), start="reach-plain"),
    Experiment("reach-plain-ppo-kl", "reach", (*clone(0, 300), *ppo(40), *GENTLE, *TO_CLONE), start="reach-plain"),
    Experiment("reach-foresight-ppo", "reach", (*clone(0, 300), *FORESIGHT, *ppo(20)), start="reach-foresight"),
    Experiment("curtain-memory", "curtain", CURTAIN_CLONE),
    Experiment("curtain-no-memory", "curtain", (*CURTAIN_CLONE, *NO_MEMORY)),
)


def table(seeds: Sequence[int]) -> str:
    """The records in Markdown: greedy success on held-out starts with its 95% interval."""
    lines = [f"| run | {' | '.join(f'seed {seed}' for seed in seeds)} | CPU seconds |", "|---|---|---|---|---|"]
    for experiment in EXPERIMENTS:
        paths = [record_path(experiment.name, seed) for seed in seeds]
        records = [json.loads(path.read_text()) if path.exists() else None for path in paths]
        if any(records):
            seconds = " / ".join(f"{record['cpu_seconds']:.0f}" for record in records if record)
            lines.append(f"| `{experiment.name}` | {' | '.join(map(cell, records))} | {seconds} |")
    return "\n".join(lines)


def cell(record: dict[str, Any] | None) -> str:
    if record is None:
        return "–"
    parts = [percent(record[phase]) for phase in ("clone", "reinforce") if phase in record]
    return " → ".join(parts)


if __name__ == "__main__":
    words = sys.argv[1:]
    tuning = "--tuning" in words
    if "--table" in words:
        sys.stdout.write(table((10,) if tuning else SEEDS) + "\n")
    else:
        main([word for word in words if not word.startswith("-")], (10,) if tuning else SEEDS)
