"""Recordings: observations and actions of open-loop action sequences in a vector environment, or of an expert."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.data.sequences import Recording
from lookact.errors import EnvError
from lookact.protocols import EnvPart
from lookact.seeding import derive, numpy_rng
from lookact.types import PlanEpisode

Infos = list[tuple[dict[str, Any], ...]]
VIEWS = "wrist", "head", "state"
Demonstration = tuple[Sequence[Mapping[str, Any]], NDArray[np.float32]]
"""An episode's observations, from its first to the one after its last action, and its actions (t, a)."""


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


def record_object_masks(env: Any, actions: NDArray[np.float32], plan_episode: PlanEpisode) -> NDArray[np.bool_]:
    """(b, t + 1, h, w) where the wrist camera shows an object, in `record`'s episodes, taken again in one `env`."""
    rows = []
    for row, taken in enumerate(actions):
        seed, options = plan_episode(row, 0)
        env.reset(seed=seed, options=options)
        masks = [env.object_mask("wrist")]
        for action in taken:
            env.step(action)
            masks.append(env.object_mask("wrist"))
        rows.append(np.stack(masks))
    return np.stack(rows)


def record_demonstrations(
    env: Any, act: Callable[[Any], NDArray[np.float32]], *, seed: int, episodes: int, steps: int, noise: float = 0.0
) -> Recording:
    """Episodes in which the expert `act` succeeds within `steps`; after its end an episode's last frame stays, masked.

    With noise the environment is pushed off the expert's way; the actions kept are the expert's own.
    """
    found: list[Demonstration] = []
    for number in range(4 * episodes):
        if len(found) == episodes:
            break
        shown, _ = env.reset(seed=derive(seed, number))
        rng, frames, actions, success = numpy_rng(seed, "noise", number), [shown], list[NDArray[np.float32]](), False
        while len(actions) < steps and not success:
            actions.append(act(env))
            disturbed = actions[-1] + noise * rng.normal(size=actions[-1].shape)
            shown, _, success, truncated, _ = env.step(np.clip(disturbed, -1, 1).astype(np.float32))
            frames.append(shown)
            if truncated:
                break
        if success:
            found.append((frames, np.stack(actions)))
    if len(found) < episodes:
        raise EnvError(f"the expert succeeded {len(found)} times in {4 * episodes}: allow more than {steps} steps")
    return stack_demonstrations(found, steps)


def stack_demonstrations(episodes: Sequence[Demonstration], steps: int) -> Recording:
    """Observations and actions (t, a) of episodes as a recording of `steps`; in a shorter one the last frame stays."""
    rows = []
    for frames, actions in episodes:
        missing, size = max(0, steps - len(actions)), actions.shape[1]
        shown = [*frames, *[frames[-1]] * missing][: steps + 1]
        padded = np.concatenate([actions, np.zeros((missing, size), np.float32)])[:steps]
        views = [np.stack([one[name] for one in shown]) for name in VIEWS]
        rows.append((*views, padded, str(frames[-1]["instruction"]), np.arange(steps) < len(actions)))
    return Recording(*(np.stack(column) for column in zip(*rows)))
