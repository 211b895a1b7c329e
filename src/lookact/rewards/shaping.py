"""Rewards put together from weighted parts, each kept apart for the log; progress as a difference of potentials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lookact.types import Episode

Part = Callable[[Episode], list[float]]
"""What one kind of reward pays in each turn of an episode."""
PARTS = "reward_parts"


@dataclass(frozen=True)
class WeightedParts:
    """Each turn's reward becomes the weighted sum of the parts."""

    parts: Mapping[str, tuple[float, Part]]
    """Name to weight and part; a part of weight 0 is worked out and logged all the same."""

    def relabel(self, episodes: Sequence[Episode]) -> list[Episode]:
        """The episodes with new rewards; what each part paid stands in each turn's info."""
        return [self._relabel(episode) for episode in episodes]

    def _relabel(self, episode: Episode) -> Episode:
        paid = {name: [weight * pay for pay in part(episode)] for name, (weight, part) in self.parts.items()}
        turns = []
        for index, turn in enumerate(episode.turns):
            mine = {name: pays[index] for name, pays in paid.items()}
            turns.append(replace(turn, reward=sum(mine.values()), info={**turn.info, PARTS: mine}))
        return replace(episode, turns=tuple(turns))


def part_means(episodes: Sequence[Episode]) -> dict[str, float]:
    """What each part paid an episode on average, of episodes that were relabelled."""
    totals: dict[str, float] = {}
    for episode in episodes:
        for turn in episode.turns:
            for name, pay in turn.info[PARTS].items():
                totals[name] = totals.get(name, 0.0) + pay
    return {name: total / len(episodes) for name, total in totals.items()}


def progress(potential: str, *, gamma: float, kept: bool) -> Part:
    """γ·Φ(after) − Φ(before) of each turn, Φ being the info's `potential` and `potential`_before.

    Over an episode it telescopes. With `kept`, what was reached by the end stays paid. Without, Φ is 0 once the episode
    has ended: the sum is then −Φ(start) whatever was done, credit moves to the turns that made progress, and no policy
    gains by it (Ng, Harada and Russell, 1999).
    """

    def part(episode: Episode) -> list[float]:
        after = [float(turn.info[potential]) if kept or not turn.terminated else 0.0 for turn in episode.turns]
        before = [float(turn.info[f"{potential}_before"]) for turn in episode.turns]
        return [gamma * later - sooner for later, sooner in zip(after, before)]

    return part


def env_reward(episode: Episode) -> list[float]:
    """What the environment paid, turn by turn."""
    return [turn.reward for turn in episode.turns]
