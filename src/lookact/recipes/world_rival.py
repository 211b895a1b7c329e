"""The explorer as it was when the duel began: both players are measured against it, whatever has become of it since."""

from __future__ import annotations

from typing import Any

from lookact.data.sequences import SequenceReplay, Sequences
from lookact.models.world import WorldModel
from lookact.recipes.world_eval import error_on


class Rival:
    """What it did in scenes held out, and how far that and random actions surprised the world model of then."""

    def __init__(self) -> None:
        self.kept = SequenceReplay(1)
        self.before: dict[str, float] = {}

    def meet(self, world: WorldModel, found: Sequences, random: Sequences, *, stride: int) -> None:
        """Keep what the explorer of now does, and how the world model of now foresees it."""
        self.kept.add(found)
        self.before = self.errors(world, random, stride=stride)

    def errors(self, world: WorldModel, random: Sequences, *, stride: int) -> dict[str, float]:
        """Nats a token on its episodes and on random ones, by the wrist alone."""
        compared = {"rival": self.kept.all(), "random": random}
        return {name: float(error_on(world, one, stride=stride).mean()) for name, one in compared.items()}

    def report(self, world: WorldModel, random: Sequences, *, stride: int) -> dict[str, float]:
        """The errors of now, beside those when the duel began."""
        now = self.errors(world, random, stride=stride)
        before = {f"{name}_error_before": value for name, value in self.before.items()}
        return {f"{name}_error": value for name, value in now.items()} | before

    def state_dict(self) -> dict[str, Any]:
        return {"kept": self.kept.state_dict(), "before": dict(self.before)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept.load_state_dict(state["kept"])
        self.before = dict(state["before"])
