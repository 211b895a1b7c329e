"""A task as TRL's `environment_factory`; needs no TRL.

trainer = GRPOTrainer(..., environment_factory=environment_factory(task), reward_funcs=episode_return,
                      train_dataset=Dataset.from_list(dataset_rows(task.specs(0, "train", groups=64))))
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from lookact.envs.interop.messages import content_blocks
from lookact.envs.remote.codec import decode, encode
from lookact.protocols import Task
from lookact.types import EpisodeSpec


class ToolEnvironment:
    """One episode at a time; the policy acts by the tool `act`."""

    def __init__(self, task: Task) -> None:
        self._env = task.make_env()
        self._over = True
        self.reward = 0.0
        self.turns: list[Any] = []
        """What each step gave."""

    def reset(self, **kwargs: Any) -> list[dict[str, Any]]:
        """Starts the episode of the row's column `spec`; returns its first observation."""
        spec: EpisodeSpec = decode(json.loads(kwargs["spec"]))
        self.reward, self.turns, self._over = 0.0, [], False
        self.start = self._env.reset(seed=spec.seed, options=spec.options)
        return content_blocks(self.start[0])

    def act(self, reply: str) -> list[dict[str, Any]]:
        """
        Take an action in the environment.

        Args:
            reply: The action, in the form that the instructions ask for.

        Returns:
            What is seen afterwards.
        """
        if self._over:
            # TRL hands this to the model as the tool's answer
            raise ValueError("the episode is over")
        step = self._env.step(reply)
        self.turns.append(step)
        seen, reward, terminated, truncated, _ = step
        self.reward += reward
        self._over = terminated or truncated
        return content_blocks(seen)


def environment_factory(task: Task) -> Callable[[], ToolEnvironment]:
    """What TRL calls for every rollout slot."""
    return lambda: ToolEnvironment(task)


def dataset_rows(specs: Sequence[EpisodeSpec], prompt: str = "Use the tool.") -> list[dict[str, Any]]:
    """A row a spec, for a `datasets.Dataset`."""
    return [{"prompt": [{"role": "user", "content": prompt}], "spec": json.dumps(encode(spec))} for spec in specs]


def episode_return(environments: Sequence[ToolEnvironment], **kwargs: Any) -> list[float]:
    """TRL's reward function: the return of each environment's episode."""
    return [environment.reward for environment in environments]
