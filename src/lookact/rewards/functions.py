"""Rewards after the fact, functions of an Episode: put together from weighted parts, each kept apart for the log.

Your own come by import path and give one number, or one a turn:

    def brevity(episode: Episode) -> float:
        return -0.01 * len(episode.turns)

`--reward_functions my_rewards:brevity*0.5` adds half of it to what the environment pays, logged as reward/brevity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lookact.config.objects import load_object
from lookact.errors import ConfigError
from lookact.text.answers import is_numeric
from lookact.types import Episode, Turn

RewardFunction = Callable[[Episode], "float | Sequence[float]"]
Part = Callable[[Episode], list[float]]
"""What one kind of reward pays in each turn of an episode."""
PARTS = "reward_parts"
"""The key in a turn's info of what each part paid."""


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


# ---- functions of your own


def load_rewards(paths: Sequence[str]) -> WeightedParts:
    """The environment's reward plus each function at MODULE:NAME, or MODULE:NAME*WEIGHT."""
    parts: dict[str, tuple[float, Part]] = {"env": (1.0, env_reward)}
    for path in paths:
        place, star, factor = path.partition("*")
        try:
            weight = float(factor) if star else 1.0
        except ValueError:
            raise ConfigError(f"reward_functions: {path}: {factor!r} is no number; write MODULE:NAME*0.5") from None
        function, name = load_object(place), place.rpartition(":")[2]
        if not callable(function):
            raise ConfigError(f"reward_functions: {place} is no function: it is a {type(function).__name__}")
        if name in parts:
            raise ConfigError(f"reward_functions: {name} is named twice: give each function a name of its own")
        parts[name] = (weight, checked(function, place))
    return WeightedParts(parts)


def checked(function: RewardFunction, name: str) -> Part:
    """The function with one number a turn; a single number is paid in the last turn. What is no reward is one line."""

    def part(episode: Episode) -> list[float]:
        try:
            paid: Any = function(episode)
        except Exception as error:
            told = " ".join(str(error).split())
            raise ConfigError(f"{name} failed: {type(error).__name__}: {told}; mend it and go on") from error
        turns = len(episode.turns)
        try:
            pays = [float(pay) for pay in (paid if np.ndim(paid) else [paid])]
        except (TypeError, ValueError):
            raise ConfigError(f"{name} gave {paid!r}: give one number, or one a turn") from None
        if not np.ndim(paid):
            pays = [0.0] * (turns - 1) + pays * (turns > 0)
        if len(pays) != turns:
            raise ConfigError(f"{name} gave {len(pays)} rewards for {turns} turns: give one number, or one a turn")
        if not all(map(math.isfinite, pays)):
            raise ConfigError(f"{name} gave a reward that is not finite in episode {episode.id}: {pays}")
        return pays

    return part


def trl_reward(function: Callable[..., Sequence[float]]) -> RewardFunction:
    """A reward function as TRL's trainers take it, `f(prompts, completions, **kwargs)`, on an episode's last reply."""

    def reward(episode: Episode) -> float:
        if not episode.turns:
            return 0.0
        last = episode.turns[-1]
        return float(function(prompts=[last.observation.text], completions=[str(last.decision.action)])[0])

    return reward


# ---- parts


def env_reward(episode: Episode) -> list[float]:
    """What the environment paid, turn by turn."""
    return [turn.reward for turn in episode.turns]


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


def invalid_action(episode: Episode) -> list[float]:
    """-1 in turns whose action could not be read: what a policy that was never shown a reply can begin with."""
    return [0.0 if turn.info.get("valid_action", True) else -1.0 for turn in episode.turns]


def answer_score(episode: Episode) -> list[float]:
    """VSI-Bench's score of the answer in the turn that gave it, 0 elsewhere."""
    return [float(turn.info["answer_reward"]) for turn in episode.turns]


def format_fault(episode: Episode) -> list[float]:
    """-1 in turns whose reply is no action, or answers with a letter for a number or a number for a letter."""
    return [0.0 if well_formed(turn) else -1.0 for turn in episode.turns]


def turn_taken(episode: Episode) -> list[float]:
    """-1 in turns that do not answer."""
    return [0.0 if turn.info["answered"] else -1.0 for turn in episode.turns]


def well_formed(turn: Turn) -> bool:
    """Whether the reply was an action, and its answer, if it gave one, of the kind that was asked for."""
    if not turn.info["valid_action"] or not turn.info["answered"]:
        return bool(turn.info["valid_action"])
    word = str(turn.info["prediction"]).strip()
    return _is_number(word) == is_numeric(turn.info["question_type"])


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
