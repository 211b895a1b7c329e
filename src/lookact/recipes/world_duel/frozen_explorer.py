"""The explorer as it was when the duel began: both players are measured against it, whatever has become of it since."""

from __future__ import annotations

from typing import Any

import numpy as np

from lookact.data.sequences import SequenceReplay, Sequences
from lookact.models.world_model.model import WorldModel
from lookact.recipes.world_duel.evaluate import Numbers, error_on, summary


class FrozenExplorer:
    """What it did in scenes held out, and how far that and random actions surprised the world model of then."""

    def __init__(self) -> None:
        self.kept = SequenceReplay(1)
        self.before: Numbers = {}

    def meet(self, world: WorldModel, found: Sequences, random: Sequences, *, stride: int) -> None:
        """Keep what the explorer of now does, and how the world model of now foresees it."""
        self.kept.add(found)
        self.before = self.errors(world, random, stride=stride)

    def errors(self, world: WorldModel, random: Sequences, *, stride: int) -> Numbers:
        """Nats a token of each of its episodes and of random ones, by the wrist alone."""
        compared = {"rival": self.kept.all(), "random": random}
        return {f"{name}_error": error_on(world, one, stride=stride) for name, one in compared.items()}

    def report(self, world: WorldModel, random: Sequences, *, stride: int) -> dict[str, Any]:
        """The errors of now, those when the duel began, and what has changed, episode by episode."""
        now = self.errors(world, random, stride=stride)
        before = {f"{name}_before": values for name, values in self.before.items()}
        change = {f"{name}_change": values - self.before[name] for name, values in now.items()}
        return summary(now | before | change)

    def state_dict(self) -> dict[str, Any]:
        return {"kept": self.kept.state_dict(), "before": {name: x.tolist() for name, x in self.before.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept.load_state_dict(state["kept"])
        self.before = {name: np.array(values) for name, values in state["before"].items()}
