"""World-model fitting: the VQ tokenizer, inputs and GRU memory over whole sequences, losses and predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.data.sequences import Recording, TokenSequences, concat, stack_history
from lookact.models.world_model.model import WorldModel, WorldModelInputs, mean_logits
from lookact.models.world_model.vq import MultiScaleVQ
from lookact.ops.losses import gaussian_nll
from lookact.ops.masked import masked_mean
from lookact.rewards.intrinsic import IntrinsicRewards, UncertaintyKind, intrinsic_rewards, uncertainty
from lookact.seeding import numpy_rng, torch_rng
from lookact.training.atomic_io import TEMPORARY, place
from lookact.training.distributed import barrier, is_main, rank, world_size
from lookact.training.optim import build_adamw, set_learning_rate
from lookact.training.progress import progress
from lookact.training.weights import read_weights, write_weights

CHUNK = 8
"""Steps of all rows in one forward pass of an evaluation."""
NORMALISER_FRAMES = 256
"""Frames that the deviation of features is measured on."""
ACTION_SEEN_PROB = 0.5
"""Probability that a model with foresight is told the action in training: without it, it predicts what will be done."""


def fit_tokenizer(
    world_model: WorldModel,
    recordings: Sequence[Recording],
    folder: Path,
    *,
    steps: int,
    batch_size: int,
    lr: float,
    seed: int,
) -> None:
    """Train the VQ tokenizer on recorded frames and keep it in `folder`, or load it from there; fit normalisers."""
    if is_main() and not folder.exists():
        parts = (frames for one in recordings for frames in (one.wrist, one.head))
        frames = torch.from_numpy(np.concatenate([part.reshape(-1, *part.shape[2:]) for part in parts]))
        vq = world_model.vq
        vq.requires_grad_(True)
        optimizer = build_adamw({"vq": vq}, lr=lr)
        generator = torch_rng(seed, "codebooks")
        bar: Any = progress(range(1, steps + 1), "fitting the VQ tokenizer")
        for step in bar:
            set_learning_rate(optimizer, step, warmup=20, total=steps, schedule="linear", floor=0.02)
            chosen = torch.randint(len(frames), (batch_size,), generator=torch_rng(seed, "frames", step))
            loss, metrics = vq.loss(frames[chosen].to(world_model.device), generator=generator)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(vq.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            bar.remark = f"psnr {float(metrics['psnr']):.1f}"
        vq.requires_grad_(False)
        temporary = folder.with_name(TEMPORARY + folder.name)
        write_weights(vq, temporary)
        place(temporary, folder)
    barrier()
    read_weights(world_model.vq, folder)()
    fit_normalisers(world_model, recordings)


def fit_normalisers(world_model: WorldModel, recordings: Sequence[Recording]) -> None:
    """Mean and deviation of states, and the deviation of VQ features, by which the model normalises its inputs."""
    states = torch.cat([torch.from_numpy(one.state).flatten(0, 1) for one in recordings])
    size = states.shape[-1]
    world_model.state_mean[:size] = states.mean(dim=0)
    world_model.state_std[:size] = states.std(dim=0).clamp(min=1e-3)
    frames = torch.from_numpy(recordings[0].wrist).flatten(0, 1)[:NORMALISER_FRAMES].to(world_model.device)
    features = world_model.features(world_model.vq.encode(frames))
    world_model.feature_std.copy_(features.std().clamp(min=1e-3))


@torch.no_grad()
def tokenise(world_model: WorldModel, recordings: Sequence[Recording], *, chunk: int = 512) -> TokenSequences:
    """Recordings with VQ ids in place of frames."""

    def encode(vq: MultiScaleVQ, frames: NDArray[np.uint8]) -> Tensor:
        flat = torch.from_numpy(frames).flatten(0, 1)
        ids = torch.cat([vq.encode(part.to(world_model.device)).cpu() for part in torch.split(flat, chunk)])
        return ids.to(torch.int16).reshape(*frames.shape[:2], -1)

    return concat(
        [
            TokenSequences(
                wrist=encode(world_model.vq, one.wrist),
                head=encode(world_model.vq, one.head),
                head_seen=torch.ones(len(one.wrist), dtype=torch.bool),
                state=torch.from_numpy(one.state),
                actions=torch.from_numpy(one.actions),
                text_ids=world_model.tokenize(one.texts.tolist()),
                mask=torch.from_numpy(one.mask),
            )
            for one in recordings
        ]
    )


@dataclass(frozen=True)
class EncodedSequences:
    """Token sequences with VQ and text features, (b, t + 1, ...) where nothing else is said."""

    frames: Tensor
    """(b, t + 1, cells, d), as is head."""
    head: Tensor
    head_seen: Tensor
    """(b,)"""
    state: Tensor
    previous_actions: Tensor
    """The action that led to each frame, zeros for the first."""
    actions: Tensor
    """(b, t, action_dim)"""
    text: Tensor
    """(b, width)"""
    ids: Tensor
    """(b, t + 1, tokens) of the wrist camera."""
    mask: Tensor
    """(b, t)"""

    @property
    def steps(self) -> int:
        return self.actions.shape[1]


@torch.no_grad()
def encode_sequences(
    world_model: WorldModel, sequences: TokenSequences, head_seen: Tensor | None = None
) -> EncodedSequences:
    """Features of token sequences; `head_seen` (b,) drops the head camera of further rows."""
    device = world_model.device
    actions = world_model.pad(sequences.actions.to(device))
    seen = sequences.head_seen if head_seen is None else sequences.head_seen & head_seen
    return EncodedSequences(
        frames=world_model.features(sequences.wrist.to(device)),
        head=world_model.features(sequences.head.to(device)),
        head_seen=seen.to(device),
        state=world_model.pad_state(sequences.state.to(device)),
        previous_actions=torch.nn.functional.pad(actions, (0, 0, 1, 0)),
        actions=actions,
        text=world_model.encode_text(sequences.text_ids.to(device)),
        ids=sequences.wrist.to(device).long(),
        mask=sequences.mask.to(device),
    )


def sample_batch(
    world_model: WorldModel, sources: Sequence[tuple[TokenSequences, int]], seed: int, head_camera_prob: float = 0.5
) -> tuple[EncodedSequences, torch.Tensor]:
    """This process's share of so many random episodes of each source, encoded, and each one's fold.

    The fold names the ensemble member that is not trained on an episode. Steps after the last one that counts in any
    of the episodes, of all processes, are cut off: demonstrations are short.
    """
    parts, folds, steps = [], [], 1
    for index, (source, count) in enumerate(sources):
        rows = numpy_rng(seed, "rows", index).choice(len(source), min(count, len(source)), replace=False)
        counted = source.mask[torch.from_numpy(rows)].any(dim=0).nonzero()
        steps = max(steps, int(counted.max()) + 1 if len(counted) else 1)
        mine = torch.from_numpy(rows[rank() :: world_size()].copy())
        parts.append(source[mine])
        folds.append(mine % world_model.spec.members)
    tokens = concat(parts).first_steps(steps)
    head_seen = torch.rand(len(tokens), generator=torch_rng(seed, "head", rank())) < head_camera_prob
    return encode_sequences(world_model, tokens, head_seen), torch.cat(folds)


def encode_wrist_only(world_model: WorldModel, sequences: TokenSequences) -> EncodedSequences:
    """Features without the head camera, which the explorer lacks."""
    return encode_sequences(world_model, sequences, torch.zeros(len(sequences), dtype=torch.bool))


def inputs_at(
    world_model: WorldModel, sequences: EncodedSequences, times: Tensor, memory: Tensor, *, stride: int
) -> tuple[WorldModelInputs, Tensor]:
    """Inputs at `times` (k,) of every row, flattened (b·k), and the actions taken there.

    memory: (b, k, memory) after the frames of those times.
    """
    length = world_model.spec.history
    frames, actions = stack_history(sequences.frames, sequences.actions, times, length=length, stride=stride)
    count = len(times)
    inputs = WorldModelInputs(
        frames=frames.flatten(0, 1),
        past=actions[:, :, :-1].flatten(0, 1),
        state=sequences.state[:, times].flatten(0, 1),
        text=sequences.text.repeat_interleave(count, dim=0),
        memory=memory.flatten(0, 1),
        head=sequences.head[:, times].flatten(0, 1),
        head_seen=sequences.head_seen.repeat_interleave(count, dim=0),
    )
    return world_model.with_vision(inputs), actions[:, :, -1].flatten(0, 1)


def update_memory(
    world_model: WorldModel, sequences: EncodedSequences, times: Tensor, carry: Tensor
) -> tuple[Tensor, Tensor]:
    """GRU outputs (b, k, memory) at consecutive `times` (k,), and the state after them; zeros before time 0."""
    starts = (times == 0).expand(len(sequences.frames), -1).to(sequences.frames.device)
    observed = (sequences.frames[:, times], sequences.previous_actions[:, times], sequences.state[:, times])
    return world_model.update_memory(*observed, carry, starts)


def run_memory(world_model: WorldModel, sequences: EncodedSequences, *, reset_each_step: bool = False) -> Tensor:
    """GRU outputs after every frame (b, t + 1, memory); `reset_each_step` is the ablation without memory."""
    rows, count = sequences.frames.shape[:2]
    starts = torch.zeros(rows, count, dtype=torch.bool, device=sequences.frames.device)
    starts[:, 0] = True
    if reset_each_step:
        starts[:] = True
    observed = (sequences.frames, sequences.previous_actions, sequences.state)
    return world_model.update_memory(*observed, world_model.memory.initial(rows), starts)[0]


@torch.no_grad()
def memory_state_at(world_model: WorldModel, sequences: EncodedSequences, start: int) -> Tensor:
    """The memory state (layers, b, hidden) before step `start`, recomputed with the current weights."""
    carry = world_model.memory.initial(len(sequences.frames))
    if not start:
        return carry
    observed = (sequences.frames[:, :start], sequences.previous_actions[:, :start], sequences.state[:, :start])
    return world_model.update_memory(*observed, carry)[1]


def next_token_loss(logits: Tensor, ids: Tensor, mask: Tensor, folds: Tensor) -> Tensor:
    """Cross-entropy of ids (n, l) under logits (members, n, l, v), over the tokens of mask (n, l).

    folds (n,) names the member that skips a row, so that members are trained on different data; a single member is
    trained on every row.
    """
    members = len(logits)
    nll = token_nll(logits, ids)
    skipped = torch.arange(members, device=ids.device)[:, None] == folds[None].to(ids.device)
    own = mask[None] & ~skipped[..., None] if members > 1 else mask[None]
    return masked_mean(nll, own.expand(nll.shape))


def next_frames(sequences: EncodedSequences, times: Tensor, frames: int) -> tuple[Tensor, Tensor]:
    """Ids (b·k, frames · tokens) of the frames after each of `times` (k,), and which of them are known.

    A frame is known if all steps up to it counted; past the last there is none.
    """
    after = times[:, None] + torch.arange(frames)
    within = after.clamp(max=sequences.steps - 1)
    known = sequences.mask[:, within] & (after < sequences.steps).to(sequences.mask.device)
    ids = sequences.ids[:, within + 1]
    known = known.long().cummin(dim=2).values.bool().unsqueeze(-1).expand(ids.shape)
    return ids.flatten(2).flatten(0, 1), known.flatten(2).flatten(0, 1)


def draw_action_seen(world_model: WorldModel, rows: int, generator: torch.Generator | None) -> Tensor | None:
    """(rows,) where the action is told in training; None, everywhere, of a model without foresight."""
    if not world_model.spec.foresight:
        return None
    return (torch.rand(rows, generator=generator) < ACTION_SEEN_PROB).to(world_model.device)


def token_nll(logits: Tensor, ids: Tensor) -> Tensor:
    """Negative log-likelihood (..., n, l) in nats of ids (n, l) under logits (..., n, l, v)."""
    chosen = ids.expand(logits.shape[:-1]).unsqueeze(-1)
    return -logits.log_softmax(dim=-1).gather(-1, chosen).squeeze(-1)


def action_loss(
    world_model: WorldModel,
    sequences: EncodedSequences,
    inputs: WorldModelInputs,
    times: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """Behaviour cloning of the action chunks taken at `times`: flow matching, or Gaussian NLL."""
    head, spec, inputs = world_model.action_head, world_model.spec, world_model.with_foresight(inputs)
    steps = times[:, None] + torch.arange(spec.chunk)
    within = steps.clamp(max=sequences.steps - 1)
    chunks = sequences.actions[:, within].flatten(0, 1)
    mask = (sequences.mask[:, within] & (steps < sequences.steps).to(sequences.mask.device)).flatten(0, 1)
    if spec.action_head == "flow":
        return head.flow_loss(lambda tokens: world_model.action_hidden(inputs, tokens), chunks, mask, generator)
    mean = head.mean(world_model.action_hidden(inputs, head.query_tokens(len(chunks))))
    return gaussian_nll(chunks[..., : spec.action_size], mean, head.log_std, mask)[0]


@torch.no_grad()
def predict_sequences(world_model: WorldModel, sequences: EncodedSequences, memory: Tensor, *, stride: int) -> Tensor:
    """Teacher-forced logits (members, b, t, tokens, codes) of every next frame."""
    found = []
    for times in torch.split(torch.arange(sequences.steps), CHUNK):
        inputs, action = inputs_at(world_model, sequences, times, memory[:, times], stride=stride)
        logits = world_model.predict(inputs, action, sequences.ids[:, times + 1].flatten(0, 1))
        found.append(logits.reshape(len(logits), len(sequences.frames), len(times), *logits.shape[2:]))
    return torch.cat(found, dim=2)


def generate_sequences(world_model: WorldModel, sequences: EncodedSequences, memory: Tensor, *, stride: int) -> Tensor:
    """Greedily decoded tokens (b, t, tokens) of every next frame."""
    parts = []
    for times in torch.split(torch.arange(sequences.steps), CHUNK):
        inputs, action = inputs_at(world_model, sequences, times, memory[:, times], stride=stride)
        parts.append(world_model.generate(inputs, action).reshape(len(sequences.frames), len(times), -1))
    return torch.cat(parts, dim=1)


def ensemble_nll(logits: Tensor, ids: Tensor) -> Tensor:
    """NLL (b, t, tokens) of ids (b, t, tokens) under the mean of the members' logits (members, b, t, tokens, v)."""
    mean = mean_logits(logits.flatten(1, 2)).reshape(logits.shape[1:])
    return token_nll(mean, ids)


@torch.no_grad()
def sequence_rewards(
    world_model: WorldModel,
    sequences: TokenSequences,
    positions: Tensor,
    *,
    stride: int,
    kind: UncertaintyKind,
    older: WorldModel | None = None,
) -> IntrinsicRewards:
    """Intrinsic rewards of every step, (b, t) each, by the wrist camera alone; positions (b, t, p) after each step.

    `older` is the world model that learning progress is measured against.
    """
    encoded = encode_wrist_only(world_model, sequences)
    memory = run_memory(world_model, encoded)
    logits = predict_sequences(world_model, encoded, memory, stride=stride).flatten(1, 2)
    known = None
    if older is not None:
        known = predict_sequences(older, encoded, run_memory(older, encoded), stride=stride).flatten(1, 2)
    expected = world_model.vq.expected(logits.softmax(dim=-1).flatten(0, 1)).reshape(*logits.shape[:2], -1)
    unsure = uncertainty(logits, expected, encoded.ids[:, 1:].flatten(0, 1), kind=kind, older=known)
    before, after = (x.flatten(0, 1) for x in (memory[:, :-1], memory[:, 1:]))
    terms = intrinsic_rewards(before, after, positions.flatten(0, 1).to(world_model.device), unsure)
    shape = (len(sequences), encoded.steps)
    return IntrinsicRewards(*(x.reshape(shape) for x in (terms.divergence, terms.uncertainty, terms.novelty)))


@torch.no_grad()
def follow(older: WorldModel, world_model: WorldModel, *, decay: float) -> None:
    """Move an exponential moving average of the weights by a step: θ_old ← γ θ_old + (1 − γ) θ (arXiv:2007.07853)."""
    for average, present in zip(older.parameters(), world_model.parameters()):
        # tokenizer and text encoder are the same in both
        average.lerp_(present, 1.0 - decay if present.requires_grad else 1.0)


def average(metrics: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over several updates."""
    return {name: sum(one[name] for one in metrics) / len(metrics) for name in metrics[-1]}
