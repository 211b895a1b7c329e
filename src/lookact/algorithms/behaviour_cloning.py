"""Behaviour cloning: demonstrations as a table of steps; squared error of predicted action chunks, or flow matching."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lookact.batch import ControlInputs, SequenceInputs, to_device
from lookact.data.lerobot.read import Demonstration
from lookact.data.row_file import RowFile
from lookact.errors import DataError
from lookact.models.vla.policy import VLA
from lookact.ops.losses import action_mse
from lookact.ops.masked import Metrics
from lookact.seeding import torch_rng


@dataclass(frozen=True)
class StepTable:
    """Every step of every demonstration, in order."""

    inputs: ControlInputs
    """n rows."""
    episode: Tensor
    """(n,) which demonstration a step is of."""

    def __len__(self) -> int:
        return len(self.episode)

    @property
    def episodes(self) -> int:
        return int(self.episode[-1]) + 1

    def ahead(self, rows: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
        """The actions (b, chunk, a) from each row on, and a mask (b, chunk) of those before its episode ends."""
        ahead = rows.unsqueeze(1) + torch.arange(chunk)
        steps = ahead.clamp_max(len(self) - 1)
        return self.inputs.actions[steps], (self.episode[steps] == self.episode[rows].unsqueeze(1)) & (ahead == steps)


def tabulate(vla: VLA, demos: Iterable[Demonstration], *, encode: bool, folder: Path | None = None) -> StepTable:
    """Demonstrations as rows; `encode` keeps frozen encoders' features in the frames' place.

    Frames stay on the disk, in a file below `folder`: memory holds those of one demonstration.
    """
    parts, lengths = [], []
    with ExitStack() as stack:
        frames = {camera: RowFile(folder) for camera in vla.spec.cameras}
        for file in frames.values():
            stack.callback(file.close)
        for demo in demos:
            rows = _rows_of(vla, demo, encode=encode)
            for camera, file in frames.items():
                file.append(rows.images[camera])
            parts.append(replace(rows, images={}))
            lengths.append(len(demo))
        if not parts:
            raise DataError("the demonstration set is empty: collect some first")
        images = {camera: file.read() for camera, file in frames.items()}
    joined = ControlInputs(
        actions=torch.cat([part.actions for part in parts]),
        state=torch.cat([part.state for part in parts]),
        images=images,
        text_ids=torch.cat([part.text_ids for part in parts]),
        history=torch.cat([part.history for part in parts]),
    )
    return StepTable(joined, torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)))


def bc_loss(
    vla: VLA, table: StepTable, *, noise: float, shuffle_prob: float, seed: int
) -> Callable[[Sequence[int], int], tuple[Tensor, Metrics]]:
    """The squared error of predicted actions over chosen steps, or over whole demonstrations for a policy with memory.

    A flow policy's is that of its velocity (flow matching).

    Gaussian `noise` is added to the action history, as an imperfect policy would have it. With `shuffle_prob` a row
    gets another row's history: a policy that can predict the action from its past alone learns to copy it (copycat
    problem, arXiv:2010.14876).
    """

    def loss(numbers: Sequence[int], step: int) -> tuple[Tensor, Metrics]:
        generator, flow = torch_rng(seed, "history", step), torch_rng(seed, "flow", step)
        if vla.spec.memory:
            return _window_loss(vla, table, numbers, noise, shuffle_prob, generator, flow)
        rows = torch.tensor(numbers)
        inputs = _perturbed(rows_at(table.inputs, rows), noise, shuffle_prob, generator)
        targets, mask = table.ahead(rows, vla.spec.action_chunk)
        targets, mask, inputs = targets.to(vla.device), mask.to(vla.device), to_device(inputs, vla.device)
        if vla.spec.action_head == "flow":
            return vla.head.loss(vla.hidden(inputs)[0], targets, mask, flow)  # type: ignore[no-any-return]
        return action_mse(vla.actor(inputs).mean, targets, mask)

    return loss


def rows_at(inputs: ControlInputs, rows: Tensor) -> ControlInputs:
    """The chosen rows; `rows` (b,), or (b, t) for windows."""
    return replace(
        inputs,
        actions=inputs.actions[rows],
        state=inputs.state[rows],
        images={camera: frames[rows] for camera, frames in inputs.images.items()},
        text_ids=inputs.text_ids[rows],
        history=inputs.history[rows],
    )


def _window_loss(
    vla: VLA,
    table: StepTable,
    numbers: Sequence[int],
    noise: float,
    shuffle_prob: float,
    generator: torch.Generator,
    flow: torch.Generator,
) -> tuple[Tensor, Metrics]:
    """Whole demonstrations, padded at their end; memory begins as zeros."""
    spans = [torch.nonzero(table.episode == number).squeeze(1) for number in numbers]
    rows = torch.nn.utils.rnn.pad_sequence(spans, batch_first=True, padding_value=-1)
    real, rows = rows >= 0, rows.clamp_min(0)
    starts = torch.zeros_like(real)
    starts[:, 0] = True
    steps = _perturbed(rows_at(table.inputs, rows), noise, shuffle_prob, generator)
    carry = vla.start_carry(len(rows))
    assert carry is not None
    windows = to_device(SequenceInputs(steps, carry, starts), vla.device)
    targets, mask = table.ahead(rows.flatten(), vla.spec.action_chunk)
    targets, mask = targets.to(vla.device), (mask & real.flatten().unsqueeze(1)).to(vla.device)
    if vla.spec.action_head == "flow":
        return vla.head.loss(vla.hidden_windows(windows).flatten(0, 1), targets, mask, flow)  # type: ignore[no-any-return]
    return action_mse(vla.evaluate_windows(windows)[0].flatten(0, 1), targets, mask)


def _perturbed(inputs: ControlInputs, noise: float, shuffle_prob: float, generator: torch.Generator) -> ControlInputs:
    past = inputs.history.flatten(0, -3)
    noisy = past + noise * torch.randn(past.shape, generator=generator) * (past.abs().sum(dim=-1, keepdim=True) > 0)
    others = noisy[torch.randperm(len(past), generator=generator)]
    shuffled = torch.rand(len(past), generator=generator) < shuffle_prob
    mixed = torch.where(shuffled[:, None, None], others, noisy)
    return replace(inputs, history=mixed.view_as(inputs.history))


def _rows_of(vla: VLA, demo: Demonstration, *, encode: bool) -> ControlInputs:
    images: Mapping[str, Tensor] = {camera: torch.from_numpy(demo.images[camera]) for camera in vla.spec.cameras}
    actions = vla.normalise_actions(torch.from_numpy(demo.actions)).numpy()
    before = np.concatenate([np.zeros((vla.spec.history, actions.shape[1]), np.float32), actions])
    windows = np.stack([before[step : step + vla.spec.history] for step in range(len(demo))])
    text_ids = vla.tokenize([demo.task]).expand(len(demo), -1)
    rows = ControlInputs(
        actions=torch.from_numpy(actions),
        state=torch.from_numpy(demo.states),
        images=vla.features(images, text_ids) if encode else dict(images),
        text_ids=text_ids,
        history=torch.from_numpy(windows),
    )
    # all demonstrations together may be larger than a device's memory
    return to_device(rows, "cpu")
