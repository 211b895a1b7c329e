"""The demo's pictures, drawn beside the training as soon as there is something to draw."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

from lookact.errors import LookActError
from lookact.training.run_files import METRICS

SECONDS = 10.0
"""Between two looks at what the training has written."""
RANDOM, BEFORE, AFTER = "random", "warm start", "after RL"
STORES = {RANDOM: "random/episodes", BEFORE: "episodes/before-greedy", AFTER: "episodes/after-greedy"}
"""Where a demo's folder keeps episodes of each policy, in the order in which they come to be."""
CURVE, PATHS = "learning-curve.png", "paths.png"


def sheet_name(policy: str) -> str:
    return f"episodes-{policy.lower().replace(' ', '-')}.png"


class Pictures:
    """What there is to see of a demo so far. While it is entered, a thread looks for more and draws it."""

    def __init__(self, folder: Path, *, iterations: int, random_rate: float, tell: Callable[[str], None]) -> None:
        self.folder, self.iterations, self.random_rate, self.tell = folder, iterations, random_rate, tell
        self.paths: list[Path] = []
        self._drawn: dict[str, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="demo pictures", daemon=True)

    def __enter__(self) -> Pictures:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def refresh(self) -> None:
        """Draw what is new since the last time."""
        from lookact.plots.navigation import draw_curve, draw_paths, draw_sheet

        stores = {policy: self.folder / place for policy, place in STORES.items() if (self.folder / place).is_dir()}
        for policy, store in stores.items():
            if policy not in self._drawn:
                self._draw(sheet_name(policy), lambda path, store=store: draw_sheet(store, path))  # type: ignore[misc]
                self._draw(PATHS, lambda path: draw_paths(stores, path))
                # only now: what was half written when it was read is drawn at the next look
                self._drawn[policy] = 1
        metrics = self.folder / METRICS
        if metrics.exists() and (size := metrics.stat().st_size) != self._drawn.get(METRICS):
            marks, iterations = self._marks(), self.iterations
            self._draw(CURVE, lambda path: draw_curve(self.folder, path, marks=marks, updates=iterations))
            self._drawn[METRICS] = size

    def _watch(self) -> None:
        while not self._over.wait(SECONDS):
            try:
                self.refresh()
            except (LookActError, OSError):
                # half written, or a full disk: the next look, or the last one after the training, tells
                continue

    def _draw(self, name: str, draw: Callable[[Path], None]) -> None:
        """Under its own name only when it is whole: somebody may be looking at it."""
        path = self.folder / "plots" / name
        unfinished = path.with_name(f".{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        draw(unfinished)
        unfinished.replace(path)
        if path not in self.paths:
            self.paths.append(path)
            self.tell(f"drew {path}")

    def _marks(self) -> list[tuple[str, float]]:
        """The level of the random policy, and that of the warm start once it was measured."""
        levels = {RANDOM: self.random_rate}
        measured = self.folder / "sft/metrics.json"
        if measured.exists():
            reports = json.loads(measured.read_text(encoding="utf-8"))["reports"]
            levels |= {BEFORE: reports["sampled"]["success_rate"]} if "sampled" in reports else {}
        return list(levels.items())
