"""Parity certificates of the tiny checkpoint of every family: python -m benchmarks.parity writes them to
benchmarks/parity, --table prints what they say for docs/models.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lookact.cli import main as lookact
from lookact.models.vlm.families import FAMILIES

RECORDS = Path("benchmarks/parity")


def main() -> None:
    for name in FAMILIES:
        if lookact(["parity", name, "--out", str(RECORDS / f"{name}.json")]):
            raise SystemExit(f"{name} is not scored as it is sampled")


def table() -> str:
    """A line a family and a kind of weights: the largest |Δ log p| with and without KV reuse, over both batch sizes."""
    lines = [
        "| family | weights | mean, KV reuse | max, KV reuse | mean, re-read | max, re-read | tokens |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in FAMILIES:
        rows = json.loads((RECORDS / f"{name}.json").read_text())["rows"]
        for weights in ("whole", "LoRA", "merged"):
            own = [row for row in rows if row["weights"] == weights]
            cells = [
                f"{max(row[value] for row in own if row['reuse'] is reuse):.1e}"
                for reuse in (True, False)
                for value in ("mean", "max")
            ]
            lines.append(f"| {name} | {weights} | {' | '.join(cells)} | {sum(row['tokens'] for row in own)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        sys.stdout.write(table() + "\n")
    else:
        main()
