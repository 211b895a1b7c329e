"""World-model evaluation: next-frame and open-loop prediction beside copying baselines, one number an episode."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from lookact.algorithms.world_model import (
    EncodedSequences,
    encode_wrist_only,
    ensemble_nll,
    generate_sequences,
    inputs_at,
    memory_state_at,
    predict_sequences,
    run_memory,
)
from lookact.data.sequences import TokenSequences
from lookact.models.world_model.explorer import Explorer
from lookact.models.world_model.model import WorldModel
from lookact.models.world_model.vq import psnr, psnr_of
from lookact.protocols import VectorEnvLike
from lookact.rollout.vector_rollout import collect_rollout
from lookact.seeding import derive
from lookact.training.evaluation import Numbers
from lookact.types import EpisodePlan

CELL_PIXELS = 8
"""Pixels a side of a cell of the finest scale."""
OBJECT_CELL = 0.25
"""Share of a cell's pixels from which it is an object's."""


@torch.no_grad()
def next_frame_numbers(
    world_model: WorldModel, sequences: EncodedSequences, frames: Tensor, *, stride: int, use_memory: bool = True
) -> Numbers:
    """One step ahead: teacher-forced NLL a token, and accuracy and PSNR of the greedily decoded frame."""
    memory = run_memory(world_model, sequences, reset_each_step=not use_memory)
    truth = sequences.ids[:, 1:]
    nll = ensemble_nll(predict_sequences(world_model, sequences, memory, stride=stride), truth)
    generated = generate_sequences(world_model, sequences, memory, stride=stride)
    return {
        "token_accuracy": by_row((generated == truth).float(), sequences.mask),
        "psnr": by_row(frame_psnr(world_model, generated, frames[:, 1:]), sequences.mask),
        "error": by_row(nll, sequences.mask),
    }


@torch.no_grad()
def open_loop_numbers(
    world_model: WorldModel,
    sequences: EncodedSequences,
    frames: Tensor,
    *,
    stride: int,
    horizon: int,
    starts: int,
    use_memory: bool = True,
) -> Numbers:
    """`horizon` steps ahead from `starts` points of each episode, fed with its own frames."""
    last = sequences.steps - horizon
    begins = sorted({round(place) for place in np.linspace(min(world_model.spec.history, last), last, starts)})
    found: dict[str, list[Tensor]] = {"token_accuracy": [], "psnr": [], "copy_accuracy": [], "copy_psnr": []}
    for begin in begins:
        ids = open_loop_tokens(world_model, sequences, begin, horizon=horizon, stride=stride, use_memory=use_memory)
        truth, true_frames = sequences.ids[:, begin + horizon], frames[:, begin + horizon]
        found["token_accuracy"].append((ids == truth).float().mean(dim=1))
        found["psnr"].append(frame_psnr(world_model, ids[:, None], true_frames[:, None])[:, 0])
        found["copy_accuracy"].append((sequences.ids[:, begin] == truth).float().mean(dim=1))
        found["copy_psnr"].append(psnr(frames[:, begin], true_frames))
    return {name: torch.stack(values).mean(dim=0).double().cpu().numpy() for name, values in found.items()}


def open_loop_tokens(
    world_model: WorldModel, sequences: EncodedSequences, begin: int, *, horizon: int, stride: int, use_memory: bool
) -> Tensor:
    """Tokens (b, tokens) predicted `horizon` steps after frame `begin`, given the actions alone.

    State and head camera are held as they were there.
    """
    frames, state, head = sequences.frames.clone(), sequences.state.clone(), sequences.head.clone()
    state[:, begin + 1 :] = state[:, begin : begin + 1]
    head[:, begin + 1 :] = head[:, begin : begin + 1]
    imagined = replace(sequences, frames=frames, state=state, head=head)
    zeros = world_model.memory.initial(len(frames))
    carry = memory_state_at(world_model, sequences, begin) if use_memory else zeros
    ids = sequences.ids[:, begin]
    for time in range(begin, begin + horizon):
        now = torch.tensor([time])
        observed = frames[:, now], sequences.previous_actions[:, now], state[:, now]
        memory, after = world_model.update_memory(*observed, carry)
        inputs, action = inputs_at(world_model, imagined, now, memory, stride=stride)
        ids = world_model.generate(inputs, action)
        frames[:, time + 1] = world_model.features(ids)
        carry = after if use_memory else zeros
    return ids


def baseline_numbers(world_model: WorldModel, sequences: EncodedSequences, frames: Tensor) -> Numbers:
    """Copying the present frame, each position's most frequent token, and the reconstruction of the true tokens."""
    truth, present = sequences.ids[:, 1:], sequences.ids[:, :-1]
    majority = truth.flatten(0, 1).mode(dim=0).values
    copied = torch.stack([psnr(now, then) for now, then in zip(frames[:, :-1], frames[:, 1:])])
    return {
        "copy_accuracy": by_row((present == truth).float(), sequences.mask),
        "majority_accuracy": by_row((majority == truth).float(), sequences.mask),
        "copy_psnr": by_row(copied, sequences.mask),
        "reconstruction_psnr": by_row(frame_psnr(world_model, truth, frames[:, 1:]), sequences.mask),
    }


@torch.no_grad()
def object_numbers(
    world_model: WorldModel, sequences: EncodedSequences, frames: Tensor, objects: Tensor, *, stride: int
) -> Numbers:
    """One step ahead where the next frame shows objects, and elsewhere; beside copying and the true tokens decoded.

    objects: (b, t + 1, h, w) True on an object. Tokens are those of the finest scale, on an object where a quarter of
    their cell is. Episodes that show none count for neither.
    """
    memory = run_memory(world_model, sequences)
    truth, present = sequences.ids[:, 1:], sequences.ids[:, :-1]
    generated = generate_sequences(world_model, sequences, memory, stride=stride)
    pixels = objects[:, 1:] & sequences.mask[..., None, None].to(objects.device)
    others = ~objects[:, 1:] & sequences.mask[..., None, None].to(objects.device)
    whole = pixels.flatten(1).any(dim=1)
    found = {"share": pixels.flatten(1).double().mean(dim=1)}
    for place, region in (("", pixels), ("elsewhere_", others)):
        cells = functional.avg_pool2d(region.float(), CELL_PIXELS).flatten(2) >= OBJECT_CELL
        for name, ids in (("", generated), ("copy_", present)):
            right = (ids == truth)[..., -cells.shape[-1] :].cpu()
            found[f"{place}{name}token_accuracy"] = _share(right, cells)
        decoded = {"": generated, "reconstruction_": truth}
        shown = {name: torch.stack([world_model.vq.decode(row) for row in ids]) for name, ids in decoded.items()}
        for name, predicted in (shown | {"copy_": frames[:, :-1]}).items():
            error = (predicted.cpu().double() - frames[:, 1:].double()).square().mean(dim=-1) / 127.5**2
            found[f"{place}{name}psnr"] = psnr_of(_share(error, region))
    return {name: values[whole].numpy() for name, values in found.items()}


def _share(values: Tensor, mask: Tensor) -> Tensor:
    """Means (b,) of values (b, ...) where mask is True; 0 where it nowhere is."""
    return (values.double() * mask).flatten(1).sum(dim=1) / mask.flatten(1).sum(dim=1).clamp(min=1)


def prediction_error(world_model: WorldModel, sequences: TokenSequences, *, stride: int) -> NDArray[np.float64]:
    """NLL (b,) in nats a token of the next wrist frames, without a head camera."""
    encoded = encode_wrist_only(world_model, sequences)
    logits = predict_sequences(world_model, encoded, run_memory(world_model, encoded), stride=stride)
    return by_row(ensemble_nll(logits, encoded.ids[:, 1:]), encoded.mask)


@torch.no_grad()
def image_error(world_model: WorldModel, sequences: TokenSequences, *, stride: int) -> NDArray[np.float64]:
    """Mean squared error (b,) of decoded frames, in grey levels of 255, without a head camera.

    The reference is the frame that its own tokens decode to: quantisation error is not counted.
    """
    encoded = encode_wrist_only(world_model, sequences)
    generated = generate_sequences(world_model, encoded, run_memory(world_model, encoded), stride=stride)
    vq, pairs = world_model.vq, zip(generated, encoded.ids[:, 1:])
    return by_row(torch.stack([(vq.decode(x).float() - vq.decode(y).float()).square() for x, y in pairs]), encoded.mask)


@torch.no_grad()
def task_numbers(policy: Explorer, envs: VectorEnvLike, *, steps: int, episodes: int, seed: int) -> Numbers:
    """Success within `steps` and the steps taken, of a greedy policy from `episodes` starts of its own seeds."""
    found: list[Tensor] = []
    for part in range(-(-episodes // envs.num_envs)):
        noise = torch.zeros(steps, envs.num_envs, policy.spec.sample_size, device=policy.device)
        rollout = collect_rollout(policy, envs, noise=noise, plan_episode=partial(_start, derive(seed, part)))
        ended = rollout.terminated | rollout.truncated
        # the first end of each row: what follows it is another episode
        first = torch.where(ended.any(dim=0), ended.long().argmax(dim=0), steps - 1)
        success = rollout.terminated.gather(0, first[None])[0]
        found.append(torch.stack([success.double(), first.double() + 1], dim=1))
    success, length = torch.cat(found)[:episodes].cpu().numpy().T
    return {"success_rate": success, "length": length}


def _start(seed: int, row: int, episode: int) -> EpisodePlan:
    return derive(seed, row, episode), {}


def frame_psnr(world_model: WorldModel, ids: Tensor, frames: Tensor) -> Tensor:
    """PSNR (b, t) of decoded ids (b, t, tokens) against true frames (b, t, h, w, 3)."""
    rows = [psnr(world_model.vq.decode(one), true.to(one.device)) for one, true in zip(ids, frames)]
    return torch.stack(rows)


def by_row(values: Tensor, mask: Tensor) -> NDArray[np.float64]:
    """Means (b,) over the steps of mask (b, t), and whatever axes follow, of values (b, t, ...)."""
    means = values.double().flatten(2).mean(dim=2) if values.dim() > 2 else values.double()
    counts = mask.to(means.device)
    mean = (means * counts).sum(dim=1) / counts.sum(dim=1).clamp(min=1)
    result: NDArray[np.float64] = mean.cpu().numpy()
    return result
