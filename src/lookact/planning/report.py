"""A plan: bytes a GPU by phase and kind, whether they fit, the setting to turn first, and the seconds of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lookact.planning.costs import Seconds
from lookact.planning.devices import GIB

KINDS = (
    "weights",
    "adapters",
    "reference",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "kv_cache",
    "pixels",
    "engine",
)
CARDS = (24, 48, 80, 141)
RESERVED, FRAGMENTED = 1.0 * GIB, 1.05
"""Of a card: CUDA's own context and workspaces, and what the allocator can't hand out again."""


@dataclass(frozen=True)
class Phase:
    """The peak of a phase of training."""

    name: str
    stage: str
    """Where in the phase."""
    sizes: dict[str, float]
    """Bytes by kind."""

    @property
    def total(self) -> float:
        return sum(self.sizes.values())


@dataclass(frozen=True)
class Plan:
    """Does it fit, and how long does it take."""

    title: str
    gpu: str
    memory: float
    """Bytes of the GPU."""
    phases: tuple[Phase, ...]
    turn_first: str
    seconds: Seconds | None
    assumptions: tuple[str, ...]

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.total)

    @property
    def fits(self) -> bool:
        return needed(self.peak.total) <= self.memory

    def as_mapping(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "plan": self.title,
            "gpu": self.gpu,
            "phases": {
                phase.name: {"peak_at": phase.stage, "bytes": phase.sizes, "total": phase.total}
                for phase in self.phases
            },
            "peak": {"phase": self.peak.name, "stage": self.peak.stage, "bytes": self.peak.total},
            "needed": needed(self.peak.total),
            "fits": self.fits,
            "fits_gb": {str(card): needed(self.peak.total) <= card * GIB for card in CARDS},
            "turn_first": self.turn_first,
            "seconds": None if self.seconds is None else {**asdict(self.seconds), "total": self.seconds.total},
            "assumptions": list(self.assumptions),
        }

    def as_text(self) -> str:
        """A table in Markdown, and sentences under it."""
        shown = [kind for kind in KINDS if any(phase.sizes.get(kind, 0.0) >= 5e6 for phase in self.phases)]
        rows = [["GiB a GPU", *(kind.replace("_", " ") for kind in shown), "in all", "peak at"]]
        for phase in self.phases:
            sizes = [f"{phase.sizes.get(kind, 0.0) / GIB:.2f}" for kind in shown]
            rows.append([phase.name, *sizes, f"{phase.total / GIB:.2f}", phase.stage])
        return "\n".join([self.title, "", table(rows), "", *self._sentences()])

    def _sentences(self) -> list[str]:
        peak, need = self.peak, needed(self.peak.total) / GIB
        largest = sorted(peak.sizes, key=lambda kind: -peak.sizes[kind])[:2]
        made_of = " and ".join(f"{peak.sizes[kind] / GIB:.1f} of {kind.replace('_', ' ')}" for kind in largest)
        cards = [f"{card}: {'fits' if need <= card else 'does not fit'}" for card in CARDS]
        lines = [
            f"peak: {peak.total / GIB:.1f} GiB in {peak.name} ({peak.stage}), {made_of}; {need:.1f} with what CUDA and "
            f"its allocator keep",
            f"on {self.gpu}: {'fits' if self.fits else 'does not fit'} · GB of a card: {', '.join(cards)}",
            f"turn first: {self.turn_first}",
        ]
        if self.seconds is not None:
            each = ", ".join(f"{name} {value:.1f}" for name, value in asdict(self.seconds).items())
            lines.append(f"estimated seconds a step: {self.seconds.total:.0f} ({each})")
        return lines + [f"assumed: {line}" for line in self.assumptions]


def needed(total: float) -> float:
    """Bytes of a card that a peak of `total` bytes of tensors takes."""
    return total * FRAGMENTED + RESERVED


def phases_of(stages: Mapping[str, Mapping[str, float]]) -> tuple[Phase, ...]:
    """The worst stage of each phase, from stages named "phase: stage"."""
    found: dict[str, Phase] = {}
    for name, sizes in stages.items():
        phase, _, stage = name.partition(": ")
        new = Phase(phase, stage or phase, {kind: size for kind, size in sizes.items() if size > 0.0})
        if phase not in found or new.total > found[phase].total:
            found[phase] = new
    return tuple(found.values())


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table, the first its head; columns are as wide as they need."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])
