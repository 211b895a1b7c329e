"""Recordings of vector environments under given actions: no policy, no reward."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lookact.data.sequences import Recording
from lookact.envs.vector.vector_env import PlanEpisode
from lookact.rollout.vector_rollout import EnvPart


def record(envs: EnvPart, actions: NDArray[np.float32], plan_episode: PlanEpisode) -> Recording:
    """One episode of every row under actions (rows, t, a); episodes must be longer than t."""
    rows, steps = actions.shape[:2]
    seen, _ = envs.reset(plan_episode)
    shown = {name: [array] for name, array in seen.arrays.items()}
    texts = np.array(seen.texts["instruction"])
    counts = np.ones((rows, steps), np.bool_)
    for t in range(steps):
        envs.send(actions[:, t])
        step = envs.receive()
        for name, array in step.observations.arrays.items():
            shown[name].append(array)
        for row in step.finals:
            # another episode goes on in its place: nothing of it belongs here
            counts[row, t:] = False
    arrays = {name: np.stack(parts, axis=1) for name, parts in shown.items()}
    return Recording(arrays["wrist"], arrays["head"], arrays["state"], actions, texts, counts)
