"""Greedy success of vla-ppo checkpoints row by row, and the paired difference of two of them on the same starts.

    python -m benchmarks.vla_rows RUN/checkpoint-30 --rows none,light,empty --out shifts.json
    python -m benchmarks.vla_rows RUN/checkpoint-30 --against RUN/warm_start --episodes 200 --out paired.json

A row is a shift of the tabletop (`none`: in distribution) or what the policy is told instead: `empty`, `wrong`. The
environment is that of the run's `config.yaml`; starts are those of `lookact eval vla-ppo`, by its seed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from math import comb
from pathlib import Path
from typing import Any

from lookact.config import load_config
from lookact.envs.tabletop.randomise import SHIFTS
from lookact.models.vla.checkpoint import load_vla
from lookact.recipes.vla_ppo.config import Config
from lookact.recipes.vla_ppo.evaluate import INSTRUCTIONS, run_episodes
from lookact.training.evaluation import wilson_interval

ROWS = (*SHIFTS, *INSTRUCTIONS)


def failures(checkpoint: Path, cfg: Config, row: str, episodes: int, *, greedy: bool = True) -> dict[str, Any]:
    """One row of a checkpoint: its rate, interval, steps, and the numbers of the episodes that failed."""
    policy = load_vla(checkpoint, device="cpu")
    policy.freeze_encoders()
    how: dict[str, Any] = {"instruction": row, "shift": "none"} if row in INSTRUCTIONS else {"shift": row}
    how |= {"seed": cfg.seed, "split": "test", "num_envs": cfg.evaluation.num_envs, "workers": 1}
    results = run_episodes(policy, cfg.env, episodes=episodes, greedy=greedy, **how)
    solved = sum(result.success for result in results)
    return {
        "success_rate": solved / episodes,
        "ci": wilson_interval(solved, episodes),
        "steps": sum(result.steps for result in results) / episodes,
        "episodes": episodes,
        "failed": [result.number for result in results if not result.success],
    }


def compare(first: Sequence[int], second: Sequence[int]) -> dict[str, Any]:
    """McNemar's exact test of two lists of failed starts: p of so uneven a split, were both equally good."""
    mended, broken = len(set(first) - set(second)), len(set(second) - set(first))
    n = mended + broken
    tail = sum(comb(n, k) for k in range(min(mended, broken) + 1)) / 2**n
    return {"mended": mended, "broken": broken, "p": min(1.0, 2 * tail)}


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--against", type=Path, help="another checkpoint, met with the same starts")
    parser.add_argument("--config", type=Path, help="config.yaml of the run; else found above the checkpoint")
    parser.add_argument("--rows", default="none", help=f"of {', '.join(ROWS)}, or all")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--sampled", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(args)
    config = given.config or next(
        folder / "config.yaml" for folder in given.checkpoint.parents if (folder / "config.yaml").is_file()
    )
    cfg = load_config(Config, config, recipe="vla-ppo")
    found: dict[str, Any] = {}
    for row in ROWS if given.rows == "all" else given.rows.split(","):
        found[row] = failures(given.checkpoint, cfg, row, given.episodes, greedy=not given.sampled)
        if given.against is not None:
            other = failures(given.against, cfg, row, given.episodes, greedy=not given.sampled)
            found[row] |= {"against": other, "paired": compare(other["failed"], found[row]["failed"])}
        # kept after every row: a long list may be stopped
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
