"""How a world model learns from sequences: windows of steps, memory carried from window to window, one loss a window.

Inside a window the gradient runs through the memory to the window's first frame; between windows it is cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lookact.data.sequences import Sequences, pairs
from lookact.models.world_model.model import Scene, WorldModel, mean_logits
from lookact.ops.imitation import gaussian_nll, token_accuracy
from lookact.ops.masked import Metrics, masked_mean
from lookact.seeding import numpy_rng, torch_rng
from lookact.training.distributed import sum_gradients
from lookact.training.optim import NonFiniteGuard, accumulate, clip_and_step


@dataclass(frozen=True)
class Film:
    """Sequences as a world model takes them, (b, t + 1, ...) where nothing else is said."""

    frames: Tensor
    """(b, t + 1, cells, d), as is head."""
    head: Tensor
    head_seen: Tensor
    """(b,)"""
    state: Tensor
    before: Tensor
    """The action that led to each frame, zeros for the first."""
    actions: Tensor
    """(b, t, action_dim)"""
    text: Tensor
    """(b, width)"""
    ids: Tensor
    """(b, t + 1, tokens) of the wrist camera."""
    counts: Tensor
    """(b, t)"""

    @property
    def steps(self) -> int:
        return self.actions.shape[1]


@dataclass(frozen=True)
class Learner:
    """Who takes the gradient steps."""

    optimizer: torch.optim.Optimizer
    guard: NonFiniteGuard
    clip_norm: float

    def step(self, loss: float) -> dict[str, float]:
        """Add up gradients over processes, clip, and step."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        sum_gradients(parameters)
        return clip_and_step(self.optimizer, parameters, max_norm=self.clip_norm, guard=self.guard, loss=loss)


@dataclass(frozen=True)
class Window:
    """Some steps of a film, from `start` to before `stop`."""

    start: int
    stop: int
    carry: Tensor
    """(layers, b, hidden) memory before them, detached."""


@torch.no_grad()
def to_film(world: WorldModel, sequences: Sequences, head_seen: Tensor | None = None) -> Film:
    """Sequences with features in place of tokens; `head_seen` (b,) narrows who sees the head camera."""
    device = world.device
    actions = world.pad(sequences.actions.to(device))
    seen = sequences.head_seen if head_seen is None else sequences.head_seen & head_seen
    return Film(
        frames=world.features(sequences.wrist.to(device)),
        head=world.features(sequences.head.to(device)),
        head_seen=seen.to(device),
        state=world.pad_state(sequences.state.to(device)),
        before=torch.nn.functional.pad(actions, (0, 0, 1, 0)),
        actions=actions,
        text=world.words(sequences.text_ids.to(device)),
        ids=sequences.wrist.to(device).long(),
        counts=sequences.counts.to(device),
    )


def scenes(world: WorldModel, film: Film, times: Tensor, remembered: Tensor, *, stride: int) -> tuple[Scene, Tensor]:
    """What is shown at `times` (k,) of every row, one below the other (b·k), and the action taken on it.

    remembered: (b, k, memory) after the frames of those times.
    """
    frames, done = pairs(film.frames, film.actions, times, length=world.spec.history, stride=stride)
    rows, count = frames.shape[:2]
    scene = Scene(
        frames=frames.flatten(0, 1),
        past=done[:, :, :-1].flatten(0, 1),
        state=film.state[:, times].flatten(0, 1),
        text=film.text.repeat_interleave(count, dim=0),
        remembered=remembered.flatten(0, 1),
        head=film.head[:, times].flatten(0, 1),
        head_seen=film.head_seen.repeat_interleave(count, dim=0),
    )
    return scene, done[:, :, -1].flatten(0, 1)


def remember_all(world: WorldModel, film: Film, *, blank: bool = False) -> Tensor:
    """What is remembered after every frame (b, t + 1, memory); `blank`: each frame as if it were the first."""
    rows, count = film.frames.shape[:2]
    starts = torch.zeros(rows, count, dtype=torch.bool, device=film.frames.device)
    starts[:, 0] = True
    if blank:
        starts[:] = True
    return world.remember(film.frames, film.before, film.state, world.memory.initial(rows), starts)[0]


def window_loss(
    world: WorldModel,
    film: Film,
    window: Window,
    folds: Tensor,
    *,
    stride: int,
    action_weight: float = 0.0,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Metrics, Tensor]:
    """Loss of a window's steps, metrics, and the memory after them.

    folds (b,) says which member of the ensemble never learns from a row, so that members see different worlds.
    """
    times = torch.arange(window.start, window.stop)
    starts = (times == 0).expand(len(film.frames), -1).to(film.frames.device)
    seen = (film.frames[:, times], film.before[:, times], film.state[:, times])
    remembered, carry = world.remember(*seen, window.carry, starts)
    scene, action = scenes(world, film, times, remembered, stride=stride)
    target = film.ids[:, times + 1].flatten(0, 1)
    logits = world.foresee(scene, action, target)
    counts = film.counts[:, times].flatten()
    loss = foresight_loss(logits, target, counts, folds.repeat_interleave(len(times)))
    known = counts.unsqueeze(1).expand(target.shape)
    metrics = {"loss/world": loss.detach(), "world/accuracy": token_accuracy(mean_logits(logits), target, known)}
    if action_weight:
        assert generator is not None
        taken = action_loss(world, film, scene, times, generator)
        loss = loss + action_weight * taken
        metrics["loss/action"] = taken.detach()
    return loss, metrics, carry.detach()


def foresight_loss(logits: Tensor, ids: Tensor, counts: Tensor, folds: Tensor) -> Tensor:
    """Cross-entropy of ids (n, l) under logits (members, n, l, v), over the rows that count (n,) and each member's own.

    A lone member learns from every row.
    """
    members = len(logits)
    errors = token_errors(logits, ids)
    away = torch.arange(members, device=ids.device)[:, None] == folds[None].to(ids.device)
    own = counts[None] & ~away if members > 1 else counts[None]
    return masked_mean(errors, own[..., None].expand(errors.shape))


def token_errors(logits: Tensor, ids: Tensor) -> Tensor:
    """Nats (..., n, l) by which ids (n, l) surprise logits (..., n, l, v)."""
    chosen = ids.expand(logits.shape[:-1]).unsqueeze(-1)
    return -logits.log_softmax(dim=-1).gather(-1, chosen).squeeze(-1)


def action_loss(world: WorldModel, film: Film, scene: Scene, times: Tensor, generator: torch.Generator) -> Tensor:
    """How badly the action expert foretells the chunks that were taken at `times`."""
    steps = times[:, None] + torch.arange(world.spec.chunk)
    known = steps.clamp(max=film.steps - 1)
    chunks = film.actions[:, known].flatten(0, 1)
    counts = (film.counts[:, known] & (steps < film.steps).to(film.counts.device)).flatten(0, 1)
    if world.spec.action_head == "flow":
        return world.actions.flow_loss(lambda tokens: world.decide(scene, tokens), chunks, counts, generator)
    mean = world.actions.mean(world.decide(scene, world.actions.asked(len(chunks))))
    return gaussian_nll(chunks[..., : world.spec.action_size], mean, world.actions.log_std, counts)[0]


@torch.no_grad()
def memory_before(world: WorldModel, film: Film, start: int) -> Tensor:
    """The memory (layers, b, hidden) that the weights of now have of all before step `start`."""
    carry = world.memory.initial(len(film.frames))
    if not start:
        return carry
    seen = (film.frames[:, :start], film.before[:, :start], film.state[:, :start])
    return world.remember(*seen, carry)[1]


def learn_film(
    world: WorldModel,
    film: Film,
    folds: Tensor,
    learner: Learner,
    *,
    length: int,
    stride: int,
    sequential: bool,
    action_weight: float,
    seed: int,
) -> dict[str, float]:
    """One gradient step for each window of `length` steps; mean metrics.

    Sequential: all windows in turn, and memory goes on from one to the next. Else as many that begin anywhere, with the
    memory brought up from the episode's first frame.
    """
    rng, generator = numpy_rng(seed, "windows"), torch_rng(seed, "flow")
    carry, taken = world.memory.initial(len(film.frames)), []
    for index in range(-(-film.steps // length)):
        start = index * length
        if not sequential:
            start = int(rng.integers(0, max(1, film.steps - length + 1)))
            carry = memory_before(world, film, start)
        window = Window(start, min(start + length, film.steps), carry)
        after: list[Tensor] = []

        def loss_fn(one: Window, after: list[Tensor] = after) -> tuple[Tensor, Metrics]:
            loss, metrics, state = window_loss(
                world, film, one, folds, stride=stride, action_weight=action_weight, generator=generator
            )
            after.append(state)
            return loss, metrics

        loss, metrics = accumulate([window], loss_fn, lambda one: film.counts[:, one.start : one.stop].sum())
        taken.append(metrics | learner.step(loss))
        # a window in which nothing counts was passed over
        carry = after[0] if after else memory_before(world, film, window.stop)
    return {name: sum(one.get(name, 0.0) for one in taken) / len(taken) for name in taken[-1]}
