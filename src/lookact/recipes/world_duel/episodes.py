"""What world-duel recorded, as episodes to be looked at: beside each frame the one that the world model foresaw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

import numpy as np
import torch
from numpy.typing import NDArray

from lookact.algorithms.control_episodes import control_turn
from lookact.data.sequences import Recording
from lookact.models.world_model.model import WorldModel
from lookact.models.world_model.vq import psnr
from lookact.recipes.world_duel.data import tokenise
from lookact.recipes.world_duel.evaluate import imagine_all, mean_of
from lookact.recipes.world_duel.student import look_through
from lookact.recipes.world_duel.update import remember_all, to_film, token_errors
from lookact.types import Episode, Image, Observation

FORESEEN = "foreseen"
"""What the pictures are called that the world model imagined one step before."""


def part(recording: Recording, rows: Sequence[int]) -> Recording:
    """Some rows of a recording."""
    return Recording(**{field.name: getattr(recording, field.name)[list(rows)] for field in fields(recording)})


def plain_episodes(recording: Recording, numbers: Sequence[int], name: str) -> Iterator[Episode]:
    """The rows of a recording, as the episodes of these numbers: nobody foresaw them, nobody was paid."""
    for row, number in enumerate(numbers):
        yield _episode(recording, row, number, name, np.zeros(len(recording.counts[row])), None)


@torch.no_grad()
def foreseen_episodes(
    world: WorldModel, recording: Recording, numbers: Sequence[int], name: str, *, stride: int
) -> Iterator[Episode]:
    """The same with the frames foreseen; the reward is the surprise that the explorer lives on, in nats a token."""
    film = to_film(world, tokenise(world, [recording]))
    remembered = remember_all(world, film)
    errors = token_errors(mean_of(look_through(world, film, remembered, stride=stride)), film.ids[:, 1:])
    surprise = errors.flatten(2).mean(dim=2).double().cpu().numpy()
    imagined = imagine_all(world, film, remembered, stride=stride)
    for row, number in enumerate(numbers):
        frames: Image = world.vq.decode(imagined[row]).cpu().numpy()
        yield _episode(recording, row, number, name, surprise[row], frames)


def _episode(
    recording: Recording, row: int, number: int, name: str, rewards: NDArray[np.float64], foreseen: Image | None
) -> Episode:
    text, steps = str(recording.texts[row]), int(recording.counts[row].sum())

    def seen(t: int) -> Observation:
        images = {"wrist": recording.wrist[row, t], "head": recording.head[row, t]}
        if foreseen is not None and t:
            images[FORESEEN] = foreseen[t - 1]
        return Observation(text, images, state=recording.state[row, t])

    def told(t: int) -> dict[str, float]:
        if foreseen is None:
            return {}
        truth = torch.from_numpy(recording.wrist[row, t + 1 : t + 2])
        return {"psnr": float(psnr(torch.from_numpy(foreseen[t : t + 1]), truth)[0])}

    turns = [
        control_turn(seen(t), recording.actions[row, t], rewards[t], truncated=t == steps - 1, info=told(t))
        for t in range(steps)
    ]
    return Episode(f"{name}-{number:04d}", number, 0, tuple(turns), seen(steps) if turns else None)
