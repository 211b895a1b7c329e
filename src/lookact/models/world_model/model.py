"""A world model that also acts: what is seen, done and remembered in, the next wrist frame's tokens or an action out.

Three groups of tokens share attention. Understanding: the cameras' present frames, the instruction, the arm's state.
Context: the last frames, the actions between them, and memory. Then either the present action and the next frame's
tokens, coarse to fine, each scale in parallel (arXiv:2404.02905), or the action expert's own. The action expert sees
neither the present action nor the next frame: it is to choose the one before the other is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from lookact.models.actor_critic import ValueHead
from lookact.models.vla.encoders import initialise
from lookact.models.vla.text import TextEncoder
from lookact.models.world_model.action_head import Actions, ActionSpec
from lookact.models.world_model.codebook_head import NEIGHBOURS, Foresight, surroundings
from lookact.models.world_model.experts import SharedAttention, attention_mask
from lookact.models.world_model.memory import Memory
from lookact.models.world_model.vq import MultiScaleVQ, VQSpec
from lookact.ops.masked import zero_outside
from lookact.seeding import torch_rng

MERGE = 2
"""Cells a side that become one token of what is seen."""


@dataclass(frozen=True)
class WorldSpec:
    """What a world model is shown, and the size of what lies between."""

    state_size: int
    action_size: int
    vq: VQSpec = field(default_factory=VQSpec)
    state_dim: int = 32
    action_dim: int = 32
    """Widths that states and actions are padded to."""
    history: int = 4
    width: int = 96
    layers: int = 3
    heads: int = 4
    memory: int = 128
    """Width of the memory; 0: none."""
    memory_layers: int = 1
    memory_backprop: bool = True
    members: int = 3
    """Heads that foresee apart, so that they can disagree."""
    chunk: int = 4
    action_head: Literal["gaussian", "flow"] = "gaussian"
    std: float = 0.5


@dataclass(frozen=True)
class Scene:
    """What a world model is shown in n steps."""

    frames: Tensor
    """(n, history, cells, d) features of the wrist camera's last frames, the present one last."""
    past: Tensor
    """(n, history − 1, action_dim) the actions between them."""
    state: Tensor
    """(n, state_dim)"""
    text: Tensor
    """(n, text width)"""
    remembered: Tensor
    """(n, memory) after the present frame."""
    head: Tensor
    """(n, cells, d) features of the head camera's present frame."""
    head_seen: Tensor
    """(n,) False where there is no head camera."""


class WorldModel(nn.Module):
    """Frames are seen through a VQ autoencoder that is frozen: its ids are what is foreseen."""

    state_real: Tensor
    action_real: Tensor
    state_mean: Tensor
    state_std: Tensor
    feature_std: Tensor
    place_understanding: Tensor
    place_context: Tensor
    place_action: Tensor
    place_query: Tensor

    def __init__(self, spec: WorldSpec, reader: TextEncoder, *, seed: int = 0) -> None:
        super().__init__()
        self.spec, self.reader = spec, reader
        self.vq = MultiScaleVQ(spec.vq)
        width, latent, cells = spec.width, spec.vq.latent, spec.vq.grid**2
        generator = torch_rng(seed, "world")
        self.vision = nn.Linear(MERGE * MERGE * latent, width)
        self.understanding = nn.ModuleDict(
            {"text": nn.Linear(reader.width, width), "state": nn.Linear(spec.state_dim, width)}
        )
        self.generation = nn.ModuleDict(
            {
                "frames": nn.Linear(MERGE * MERGE * spec.history * latent, width),
                "past": nn.Linear(spec.action_dim, width),
                "memory": nn.Linear(max(1, spec.memory), width),
                "action": nn.Linear(spec.action_dim, width),
                "query": nn.Linear(latent, width),
                "present": nn.Linear(NEIGHBOURS * latent, width),
            }
        )
        self.memory_input = nn.Linear(cells * latent + spec.action_dim + spec.state_dim, max(1, spec.memory))
        self.memory = Memory(
            max(1, spec.memory), max(1, spec.memory), spec.memory_layers, backprop=spec.memory_backprop
        )
        self.attention = SharedAttention(width, spec.layers, spec.heads)
        action = ActionSpec(spec.action_dim, spec.action_size, spec.chunk, spec.action_head, spec.std)
        self.actions = Actions(action, width)
        # the reader may have come with weights of its own
        for part in (self.vision, self.understanding, self.generation, self.memory_input, self.attention, self.actions):
            initialise(part, generator)
        self._draw_places(generator)
        self.foresight = Foresight(spec.members, width, latent, spec.vq.codes, generator)
        self.critic = ValueHead(width, width)
        self.register_buffer("state_real", torch.arange(spec.state_dim) < spec.state_size)
        self.register_buffer("action_real", torch.arange(spec.action_dim) < spec.action_size)
        self.register_buffer("state_mean", torch.zeros(spec.state_dim))
        self.register_buffer("state_std", torch.ones(spec.state_dim))
        self.register_buffer("feature_std", torch.ones(()))
        self.vq.requires_grad_(False)

    @property
    def device(self) -> torch.device:
        return self.state_mean.device

    def features(self, ids: Tensor) -> Tensor:
        """What the tokens ids (..., tokens) describe, by cells (..., cells, d)."""
        maps = self.vq.features(ids.flatten(0, -2).long()).flatten(2)
        return maps.transpose(1, 2).reshape(*ids.shape[:-1], maps.shape[2], maps.shape[1])

    def pad(self, actions: Tensor) -> Tensor:
        """Actions (..., action_size) as (..., action_dim), zeros behind."""
        return nn.functional.pad(actions, (0, self.spec.action_dim - actions.shape[-1]))

    def pad_state(self, state: Tensor) -> Tensor:
        """States (..., state_size) as (..., state_dim), zeros behind."""
        return nn.functional.pad(state, (0, self.spec.state_dim - state.shape[-1]))

    def remember(
        self, frames: Tensor, before: Tensor, state: Tensor, carry: Tensor | None, starts: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What is remembered after each frame (b, t, memory), and the state to carry on.

        frames: (b, t, cells, d); before: (b, t, action_dim) the action that led to each, zeros for an episode's first;
        state: (b, t, state_dim).
        """
        parts = (frames.flatten(2) / self.feature_std, _real(before, self.action_real), self._scaled(state))
        seen = torch.tanh(self.memory_input(torch.cat(parts, dim=-1)))
        remembered: tuple[Tensor, Tensor] = self.memory(seen, carry, starts)
        return remembered

    def foresee(self, scene: Scene, action: Tensor, ids: Tensor) -> Tensor:
        """Logits (members, n, tokens, codes) of the next frame's tokens; those of a scale know the coarser ids only.

        action: (n, action_dim) on the present frame; ids: (n, tokens) of the next, of which the last scale is not read.
        """
        understood, context = self._understand(scene), self._context(scene)
        act = self.generation["action"](_real(action, self.action_real))[:, None] + self.place_action
        coarse = self.vq.queries(ids.long())
        around = surroundings(scene.frames[:, -1], self.vq.spec.scales)
        # what stands around a token's place now, and the action on it, tell most of what will stand there next
        now = self.generation["present"](around.flatten(2) / self.feature_std) + act + self.place_query
        queries = now + self.generation["query"](coarse / self.feature_std)
        parts = [("understanding", understood), ("generation", torch.cat([context, act, queries], dim=1))]
        mask = self._query_mask(understood.shape[1], context.shape[1]).to(ids.device)
        hidden = self.attention(parts, mask)[1][:, context.shape[1] + 1 :]
        still = around[:, :, NEIGHBOURS // 2] - coarse
        logits: Tensor = self.foresight(hidden, still, self.vq.codebooks, self.vq.counts, self.vq.spec.scales)
        return logits

    @torch.no_grad()
    def imagine(self, scene: Scene, action: Tensor) -> Tensor:
        """The likeliest next frame's tokens (n, tokens), scale by scale, knowing nothing of the true one."""
        ids = torch.zeros(len(action), self.vq.spec.tokens, dtype=torch.long, device=action.device)
        end = 0
        for side in self.vq.spec.scales:
            start, end = end, end + side * side
            logits = mean_logits(self.foresee(scene, action, ids)[:, :, start:end])
            ids[:, start:end] = logits.argmax(dim=-1)
        return ids

    def decide(self, scene: Scene, tokens: Tensor) -> Tensor:
        """The action expert's hidden states (n, l, width) of its tokens (n, l, width)."""
        understood, context = self._understand(scene), self._context(scene)
        seen, known, chosen = understood.shape[1], context.shape[1], tokens.shape[1]
        mask = attention_mask([(seen, [0]), (known, [0, 1]), (chosen, [0, 1, 2])]).to(tokens.device)
        parts = [("understanding", understood), ("generation", context), ("action", tokens)]
        hidden: Tensor = self.attention(parts, mask)[2]
        return hidden

    def read(self, texts: Sequence[str]) -> Tensor:
        """Token ids (n, length) of instructions."""
        return self.reader.tokenize(texts)

    def words(self, ids: Tensor) -> Tensor:
        """What instructions' ids (n, length) say (n, text width)."""
        unique, places = torch.unique(ids, dim=0, return_inverse=True)
        # one by one: in a batch the last digits would depend on which others are read along with it
        return torch.cat([self.reader(row[None]) for row in unique])[places]

    def _understand(self, scene: Scene) -> Tensor:
        wrist, head = (self.vision(self._merged(x) / self.feature_std) for x in (scene.frames[:, -1], scene.head))
        head = torch.where(scene.head_seen[:, None, None], head, self.blind)
        words = self.understanding["text"](scene.text)[:, None]
        arm = self.understanding["state"](self._scaled(scene.state))[:, None]
        understood: Tensor = torch.cat([wrist, head, words, arm], dim=1) + self.place_understanding
        return understood

    def _context(self, scene: Scene) -> Tensor:
        seen = scene.frames.transpose(1, 2).flatten(2) / self.feature_std
        frames = self.generation["frames"](self._merged(seen))
        past = self.generation["past"](_real(scene.past, self.action_real))
        parts = [frames, past]
        if self.spec.memory:
            parts.append(self.generation["memory"](scene.remembered)[:, None])
        return torch.cat(parts, dim=1) + self.place_context

    def _merged(self, cells: Tensor) -> Tensor:
        """Neighbouring cells (n, cells, d) as one token's input (n, cells / 4, 4 d)."""
        side = self.vq.spec.grid // MERGE
        blocks = cells.reshape(len(cells), side, MERGE, side, MERGE, -1).transpose(2, 3)
        return blocks.flatten(3, 5).flatten(1, 2)

    def _scaled(self, state: Tensor) -> Tensor:
        real = _real(state, self.state_real)
        return _real((real - self.state_mean) / self.state_std, self.state_real)

    def _query_mask(self, seen: int, known: int) -> Tensor:
        groups: list[tuple[int, list[int]]] = [(seen, [0]), (known, [0, 1]), (1, [0, 1, 2])]
        for side in self.vq.spec.scales:
            groups.append((side * side, list(range(len(groups) + 1))))
        return attention_mask(groups)

    def _draw_places(self, generator: torch.Generator) -> None:
        spec, tokens = self.spec, self.vq.spec.tokens
        merged = self.vq.spec.grid**2 // MERGE**2
        seen = 2 * merged + 2
        known = merged + spec.history - 1 + (spec.memory > 0)
        sizes = {"understanding": seen, "context": known, "action": 1, "query": tokens}
        for name, size in sizes.items():
            drawn = torch.randn(size, spec.width, generator=generator)
            setattr(self, f"place_{name}", nn.Parameter(0.5 * drawn))
        self.actions.start(generator)
        self.blind = nn.Parameter(torch.randn(1, 1, spec.width, generator=generator))


def mean_logits(logits: Tensor) -> Tensor:
    """Log-probabilities (n, l, v) of the members' mean prediction, from logits (members, n, l, v)."""
    return torch.logsumexp(logits.log_softmax(dim=-1), dim=0) - torch.log(torch.tensor(float(len(logits))))


def _real(x: Tensor, real: Tensor) -> Tensor:
    """x (..., d) with zeros, whatever stood there, in the dimensions that are padding."""
    return zero_outside(x, real.expand(x.shape))
