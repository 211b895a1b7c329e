"""Reward functions of your own, by import path: functions of an Episode that give one number, or one a turn.

    def brevity(episode: Episode) -> float:
        return -0.01 * len(episode.turns)

`--reward_functions my_rewards:brevity*0.5` adds half of it to what the environment pays, logged as reward/brevity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lookact.config.objects import load_object
from lookact.errors import ConfigError
from lookact.rewards.shaping import Part, WeightedParts, env_reward
from lookact.types import Episode

RewardFunction = Callable[[Episode], "float | Sequence[float]"]


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


def invalid_action(episode: Episode) -> list[float]:
    """-1 in turns whose action could not be read: what a policy that was never shown a reply can begin with."""
    return [0.0 if turn.info.get("valid_action", True) else -1.0 for turn in episode.turns]


def trl_reward(function: Callable[..., Sequence[float]]) -> RewardFunction:
    """A reward function as TRL's trainers take it, `f(prompts, completions, **kwargs)`, on an episode's last reply."""

    def reward(episode: Episode) -> float:
        if not episode.turns:
            return 0.0
        last = episode.turns[-1]
        return float(function(prompts=[last.observation.text], completions=[str(last.decision.action)])[0])

    return reward
