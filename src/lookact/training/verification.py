"""Two results of the same command, measure by measure: the same number, within each other's noise, or not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["same", "agrees", "differs", "changed"]
IGNORED = ("seconds", "commit", "cpu_seconds", "clock_seconds")
"""What a result holds beside measures: it differs from run to run."""


@dataclass(frozen=True)
class Comparison:
    """A measure as it was recorded and as it was found again, each with its interval where it has one."""

    name: str
    recorded: float
    again: float
    recorded_interval: tuple[float, float] | None
    again_interval: tuple[float, float] | None

    @property
    def verdict(self) -> Verdict:
        """same: to the last digit; agrees: the intervals overlap; differs: they do not; changed: there are none."""
        if self.recorded == self.again or (math.isnan(self.recorded) and math.isnan(self.again)):
            return "same"
        if self.recorded_interval is None or self.again_interval is None:
            return "changed"
        (low, high), (low_again, high_again) = self.recorded_interval, self.again_interval
        return "agrees" if low <= high_again and low_again <= high else "differs"


def compare_results(recorded: Mapping[str, Any], again: Mapping[str, Any]) -> list[Comparison]:
    """Every number that both results have, in the record's order, under its dotted name."""
    return list(_compare(recorded, again, ""))


def _compare(recorded: Mapping[str, Any], again: Mapping[str, Any], prefix: str) -> Iterator[Comparison]:
    intervals, intervals_again = (_mapping(result.get("ci")) for result in (recorded, again))
    for name, value in recorded.items():
        other = again.get(name)
        if name == "ci" or name in IGNORED:
            continue
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            yield from _compare(value, other, f"{prefix}{name}.")
        elif _is_number(value) and _is_number(other):
            bounds = _interval(intervals.get(name)), _interval(intervals_again.get(name))
            yield Comparison(prefix + name, float(value), float(other), *bounds)  # type: ignore[arg-type]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _interval(value: Any) -> tuple[float, float] | None:
    held = isinstance(value, (list, tuple)) and len(value) == 2 and all(map(_is_number, value))
    return (float(value[0]), float(value[1])) if held else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
