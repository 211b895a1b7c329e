"""The group-relative methods beside each other: one start, one budget of gradient steps, MiniGrid's DoorKey.

python -m benchmarks.group_methods [--seeds 0 1 2] runs what has no record in benchmarks/group-methods yet and prints
the table; OMP_NUM_THREADS=1 keeps it to one core. Each method starts from the same supervised start of its seed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lookact.cli import main as lookact

RECORDS, RUNS = Path("benchmarks/group-methods"), Path("runs/group-methods")
TASK = ("--task", "minigrid", "--preset", "small", "--evaluation.every", "1000")
START = (
    *("--vision_pretraining.rooms", "1200", "--vision_pretraining.epochs", "4", "--sft.demonstrations", "1200"),
    *("--sft.epochs", "4", "--sft.lr", "2e-3", "--learn.iterations", "0", "--evaluation.final_episodes", "0"),
)
RL = (
    *("--vision_pretraining.rooms", "0", "--sft.demonstrations", "0", "--evaluation.final_episodes", "200"),
    *("--learn.iterations", "15", "--learn.groups", "16", "--learn.group_size", "6", "--learn.lr", "3e-4"),
    *("--learn.epochs", "2", "--learn.gamma", "0.95", "--learn.scale_advantages", "false"),
    *("--learn.negative_advantage_weight", "1"),
)
METHODS = {
    "RLOO": ("--learn.baseline", "leave_one_out"),
    "GRPO": ("--learn.baseline", "group_normalised", "--learn.aggregate", "sequence"),
    "Dr. GRPO": ("--learn.baseline", "group_mean", "--learn.aggregate", "constant"),
    "GSPO": (
        *("--learn.baseline", "group_normalised", "--learn.policy_loss", "gspo"),
        *("--learn.aggregate", "sequence", "--learn.clip", "0.01"),
    ),
    "CISPO": ("--learn.baseline", "group_normalised", "--learn.policy_loss", "cispo"),
    "GiGPO": ("--learn.baseline", "group_normalised", "--learn.credit", "anchor"),
    "GRPO, refilled": (
        *("--learn.baseline", "group_normalised", "--learn.aggregate", "sequence"),
        *("--learn.zero_variance", "refill", "--learn.refill_limit", "2"),
    ),
}


def slug(method: str) -> str:
    return method.lower().replace(". ", "-").replace(", ", "-")


def run_method(method: str, seed: int) -> None:
    """Train it from the seed's start and keep what it came to."""
    start = RUNS / "nav-rloo" / f"start-seed-{seed}"
    out = ("--seed", str(seed), "--out", str(RUNS))
    if not (start / "result.json").exists():
        run(["train", "rloo", *TASK, *START, *out, "--name", start.name])
    name = f"{slug(method)}-seed-{seed}"
    words = ["train", "rloo", *TASK, *RL, *METHODS[method], "--model.source", str(start / "sft"), *out, "--name", name]
    used = time.process_time()
    run(words)
    folder = RUNS / "nav-rloo" / name
    result = json.loads((folder / "result.json").read_text())
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    kept = {
        "method": method,
        "seed": seed,
        "command": "lookact " + shlex.join(words),
        "commit": json.loads((folder / "versions.json").read_text())["commit"],
        "cpu_seconds": round(time.process_time() - used, 1),
        "episodes": sum(row.get("rollout/episodes", 0) for row in rows),
        "before": result["before"],
        "after": result["after"],
    }
    (RECORDS / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")


def run(words: Sequence[str]) -> None:
    if lookact([*words, "--auto-resume"]):
        raise SystemExit(f"failed: lookact {shlex.join(words)}")


def table(seeds: Sequence[int]) -> str:
    """One row a method: success on held-out maps after RL, by seed."""
    lines = ["| method | sampled, by seed | mean | greedy, by seed | mean | CPU seconds |", "|---|---|---|---|---|---|"]
    for method in METHODS:
        files = [RECORDS / f"{slug(method)}-seed-{seed}.json" for seed in seeds]
        found: list[dict[str, Any]] = [json.loads(file.read_text()) for file in files if file.exists()]
        if not found:
            continue
        if method == "RLOO":
            lines.append("| the supervised start | " + " | ".join(columns(found, "before")) + " | |")
        spent = np.mean([one["cpu_seconds"] for one in found])
        lines.append(f"| {method} | " + " | ".join(columns(found, "after")) + f" | {spent:.0f} |")
    return "\n".join(lines)


def columns(found: Sequence[dict[str, Any]], when: str) -> list[str]:
    cells = []
    for how in ("sampled", "greedy"):
        rates = [100 * one[when][how]["success_rate"] for one in found]
        cells += [", ".join(f"{rate:.0f}%" for rate in rates), f"{np.mean(rates):.1f}%"]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    arguments = parser.parse_args()
    RECORDS.mkdir(parents=True, exist_ok=True)
    for seed in arguments.seeds:
        for method in arguments.methods:
            if not (RECORDS / f"{slug(method)}-seed-{seed}.json").exists():
                run_method(method, seed)
    sys.stdout.write(table(arguments.seeds) + "\n")


if __name__ == "__main__":
    main()
