"""Memory of `lookact collect` over thousands of episodes at tiny size.

`python -m benchmarks.collect_memory --out benchmarks/collect` writes the record: the process's resident set when so
many episodes have been written, of a tiny model on FrozenLake, 64 episodes side by side.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lookact.cli import main as command
from lookact.data.episode_store import EpisodeStore
from lookact.planning.report import table
from lookact.types import Episode

TINY = "--model.hidden 32 --model.layers 1 --model.vision_hidden 32 --model.vision_depth 1 --sampling.max_tokens 4"
WORDS = f"collect rloo --preset debug --task frozen-lake --env.max_turns 2 {TINY} --json"
MEGABYTE = 2**20


def resident_mb() -> float:
    """This process's resident set."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / MEGABYTE


def measure(episodes: int, every: int) -> dict[str, Any]:
    """The resident set after each `every` of `episodes`, and what the folder holds in the end."""
    add, found = EpisodeStore.add, dict[int, float]()
    count = 0

    def counted(store: EpisodeStore, episode: Episode) -> None:
        nonlocal count
        add(store, episode)
        count += 1
        if count % every == 0:
            found[count] = round(resident_mb(), 1)

    setattr(EpisodeStore, "add", counted)  # noqa: B010
    with tempfile.TemporaryDirectory() as folder:
        command([*WORDS.split(), "--episodes", str(episodes), "--out", folder])
        size = sum(path.stat().st_size for path in Path(folder).iterdir() if path.is_file())
    return {"episodes": count, "resident_mb": found, "on_disk_mb": round(size / MEGABYTE, 1)}


def slope(resident: Mapping[int, float]) -> tuple[float, float]:
    """Growth in kB an episode by least squares, with its standard error."""
    counts, held = np.array(list(resident), dtype=float), np.array(list(resident.values()))
    line, covariance = np.polyfit(counts, held * 1000, 1, cov=True)
    return float(line[0]), float(covariance[0, 0] ** 0.5)


def page(record: dict[str, Any]) -> str:
    """The record as a page."""
    resident = {int(count): mb for count, mb in record["resident_mb"].items()}
    rows = [[str(count), f"{mb:.1f}"] for count, mb in resident.items()]
    growth, error = slope(resident)
    first, last = next(iter(resident.values())), list(resident.values())[-1]
    kept = 1000 * record["on_disk_mb"] / record["episodes"]
    return f"""# Memory of `lookact collect`

By `python -m benchmarks.collect_memory --out benchmarks/collect`: a tiny model on FrozenLake, 64 episodes side by side,
{record["episodes"]} episodes, {record["on_disk_mb"]:.0f} MB on disk.

{table([["episodes written", "resident MB"], *rows])}

{last / first - 1:.1%} more at the end than after the first row: {growth:.1f} ± {error:.1f} kB an episode by least
squares, beside {kept:.1f} kB that one takes on disk. No episode is held once it is written, which
`tests/rollout/test_collect.py` shows; what grows goes up and down in steps of 6 MB, as an allocator's does.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    record = measure(arguments.episodes, arguments.every)
    sys.stdout.write(page(record))
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "memory.json").write_text(json.dumps(record, indent=2) + "\n")
        (arguments.out / "README.md").write_text(page(record))


if __name__ == "__main__":
    main()
