"""Recordings of open-loop action sequences in a vector environment: observations and actions, no policy, no reward."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.data.sequences import Recording
from lookact.protocols import EnvPart
from lookact.types import PlanEpisode

Infos = list[tuple[dict[str, Any], ...]]


def record(envs: EnvPart, actions: NDArray[np.float32], plan_episode: PlanEpisode) -> Recording:
    """One episode of every environment under actions (rows, t, a); episodes must be longer than t."""
    return record_with_infos(envs, actions, plan_episode)[0]


def record_with_infos(
    envs: EnvPart, actions: NDArray[np.float32], plan_episode: PlanEpisode
) -> tuple[Recording, Infos]:
    """The same, and every step's infos."""
    rows, steps = actions.shape[:2]
    first, _ = envs.reset(plan_episode)
    frames = {name: [array] for name, array in first.arrays.items()}
    texts = np.array(first.texts["instruction"])
    mask = np.ones((rows, steps), np.bool_)
    infos: Infos = []
    for t in range(steps):
        envs.send(actions[:, t])
        step = envs.receive()
        infos.append(step.infos)
        for name, array in step.observations.arrays.items():
            frames[name].append(array)
        for row in step.finals:
            # the row was reset: what follows is another episode
            mask[row, t:] = False
    arrays = {name: np.stack(parts, axis=1) for name, parts in frames.items()}
    return Recording(arrays["wrist"], arrays["head"], arrays["state"], actions, texts, mask), infos
