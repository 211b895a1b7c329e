"""Rows of recordings as Episodes, with the frames that a world model predicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

import numpy as np
import torch
from numpy.typing import NDArray

from lookact.algorithms.control_episodes import control_turn
from lookact.algorithms.world_model import (
    encode_sequences,
    ensemble_nll,
    generate_sequences,
    predict_sequences,
    run_memory,
    tokenise,
)
from lookact.data.sequences import Recording
from lookact.models.world_model.model import WorldModel
from lookact.models.world_model.vq import psnr
from lookact.types import Episode, Image, Observation


@torch.no_grad()
def predicted_episodes(
    world_model: WorldModel, recording: Recording, numbers: Sequence[int], name: str, *, stride: int
) -> Iterator[Episode]:
    """Rows of a recording with the predicted frames; the reward is the surprise, in nats a token."""
    encoded = encode_sequences(world_model, tokenise(world_model, [recording]))
    memory = run_memory(world_model, encoded)
    nll = ensemble_nll(predict_sequences(world_model, encoded, memory, stride=stride), encoded.ids[:, 1:])
    surprise = nll.flatten(2).mean(dim=2).double().cpu().numpy()
    generated = generate_sequences(world_model, encoded, memory, stride=stride)
    for row, number in enumerate(numbers):
        frames: Image = world_model.vq.decode(generated[row]).cpu().numpy()
        yield recorded_episode(recording, row, number, name, surprise[row], frames)


def select_rows(recording: Recording, rows: Sequence[int]) -> Recording:
    return Recording(**{field.name: getattr(recording, field.name)[list(rows)] for field in fields(recording)})


def recorded_episode(
    recording: Recording,
    row: int,
    number: int,
    name: str,
    rewards: NDArray[np.float64] | None = None,
    predicted: Image | None = None,
) -> Episode:
    """One row of a recording as an Episode."""
    text, steps = str(recording.texts[row]), int(recording.mask[row].sum())

    def observation(t: int) -> Observation:
        images = {"wrist": recording.wrist[row, t], "head": recording.head[row, t]}
        if predicted is not None and t:
            images["predicted"] = predicted[t - 1]
        return Observation(text, images, state=recording.state[row, t])

    def info(t: int) -> dict[str, float]:
        if predicted is None:
            return {}
        truth = torch.from_numpy(recording.wrist[row, t + 1 : t + 2])
        return {"psnr": float(psnr(torch.from_numpy(predicted[t : t + 1]), truth)[0])}

    turns = [
        control_turn(
            observation(t),
            recording.actions[row, t],
            0.0 if rewards is None else rewards[t],
            truncated=t == steps - 1,
            info=info(t),
        )
        for t in range(steps)
    ]
    return Episode(f"{name}-{number:04d}", number, 0, tuple(turns), observation(steps) if turns else None)
