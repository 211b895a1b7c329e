"""What a bench tells: rows that name what was done, beside what, the ratio, and whether the aim was met."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.timing import Timing


@dataclass(frozen=True)
class Aim:
    """A bound on a row's ratio, or on its rate."""

    bound: float
    at_least: bool
    on: str = "ratio"

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value < self.bound

    def __str__(self) -> str:
        return f"{self.on} {'at least' if self.at_least else 'under'} {self.bound:g}"


@dataclass(frozen=True)
class Row:
    """One comparison."""

    name: str
    ours: str
    """What LookAct's side reached, with its unit."""
    against: str
    """What the other side reached."""
    ratio: float | None
    ratio_range: tuple[float, float] | None
    """Smallest and largest over the repetitions."""
    aims: tuple[str, ...] = ()
    met: tuple[bool, ...] = ()
    memory: str = ""
    """Peak of each side's process, and in brackets what its work added to it."""
    detail: dict[str, Any] | None = None
    """Every number behind the row."""


def compare(first: Timing, second: Timing) -> tuple[float, tuple[float, float]]:
    """How many times longer the first took than the second: median and range over pairs of repetitions."""
    ratios = [a / b for a, b in zip(first.seconds, second.seconds)]
    return statistics.median(ratios), (min(ratios), max(ratios))


def memory(ours: Timing, against: Timing) -> str:
    """Both sides' peaks in words."""
    return " / ".join(f"{side.peak_mb:.0f} (+{side.peak_mb - side.start_mb:.0f}) MB" for side in (ours, against))


def in_seconds(timing: Timing) -> str:
    """How long a side took."""
    return f"{timing.median:.2f} s"


def timed_row(name: str, times: Mapping[str, Timing], aim: Aim, tell: Callable[[Timing], str] = in_seconds) -> Row:
    """How many times longer `against` took than `ours`; `tell` says what a side reached."""
    ours, against = times["ours"], times["against"]
    ratio, spread = compare(against, ours)
    return Row(
        name=name,
        ours=tell(ours),
        against=tell(against),
        ratio=ratio,
        ratio_range=spread,
        aims=(str(aim),),
        met=(aim.met(ratio),),
        memory=memory(ours, against),
        detail=plain_times(times),
    )


def lone_row(name: str, times: Mapping[str, Timing], missing: str, tell: Callable[[Timing], str] = in_seconds) -> Row:
    """LookAct's side alone, and why there is no other."""
    return Row(name, tell(times["ours"]), missing, None, None, detail=plain_times(times))


def plain(rows: Sequence[Row], *, about: str, notes: Sequence[str] = ()) -> dict[str, Any]:
    """A bench's result as JSON takes it; the load of the machine tells whether it was quiet."""
    return {
        "about": about,
        "rows": [asdict(row) for row in rows],
        "notes": list(notes),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[1],
    }


def plain_times(times: Mapping[str, Timing]) -> dict[str, Any]:
    """Every repetition, for the record."""
    return {side: asdict(timing) for side, timing in times.items()}


def format_ratio(row: Mapping[str, Any]) -> str:
    """A row's ratio with its range over the repetitions."""
    if row["ratio"] is None:
        return ""
    low, high = row["ratio_range"]
    return f"{row['ratio']:.2f} ({low:.2f} to {high:.2f})"


def format_aims(row: Mapping[str, Any]) -> str:
    """Every aim of a row and whether it was met."""
    return "; ".join(f"{aim}: {'met' if met else 'not met'}" for aim, met in zip(row["aims"], row["met"]))


def page(results: Mapping[str, Mapping[str, Any]], *, command: str, commit: str | None) -> str:
    """Results as a page of Markdown."""
    lines = ["# Speed", "", f"`{command}` at commit `{commit or 'unknown'}`.", ""]
    for name, result in results.items():
        lines += [
            f"## {name}",
            "",
            f"{result['about']}.",
            "",
            "| measured | LookAct | against | ratio | aim | memory |",
        ]
        lines += ["|---|---|---|---|---|---|"]
        for row in result["rows"]:
            cells = (row["name"], row["ours"], row["against"], format_ratio(row), format_aims(row), row["memory"])
            lines.append(f"| {' | '.join(cells)} |")
        lines += ["", *(f"- {note}" for note in result["notes"]), f"- {format_load(result)}", ""]
    return "\n".join(lines)


def format_load(result: Mapping[str, Any]) -> str:
    """How busy the machine was; the bench itself accounts for 1."""
    load, cores = result["load_average"], result["cores"]
    shared = "other jobs ran beside the bench: rerun on a quiet machine" if load > 1.5 else "nothing else ran beside it"
    return f"{cores} cores, load average {load:.1f} (the bench itself makes 1): {shared}"
