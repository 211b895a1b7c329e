"""World model of the F1 kind (arXiv:2509.06951): one transformer that predicts the next wrist frame and acts.

Inputs are three groups of tokens that share attention. Understanding: the cameras' present frames, the instruction, the
robot state. Context: the last frames, the actions between them, and the GRU memory. Then either the present action and
queries for the next frame's tokens, coarse to fine, each scale in parallel (arXiv:2404.02905), or the action expert's
own. With `foresight` the generation expert first predicts the next frame without the action, and the action expert
attends to the tokens it predicted, coarse to fine; never to the present action or the true next frame.

With `predicted_frames` above 1 the frames after the next one follow it, each coarse to fine, each scale attending to
all that stands before it; only the first of them is told the action.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn

from lookact.errors import ConfigError
from lookact.models.actor_critic import ValueHead
from lookact.models.vla.encoders import TextEncoder, initialise
from lookact.models.world_model.heads import NEIGHBOURS, ActionHead, ActionSpec, CodebookHead, neighbourhoods
from lookact.models.world_model.layers import KeyValues, Memory, SharedAttention, attention_mask
from lookact.models.world_model.vision import PretrainedVision
from lookact.models.world_model.vq import MultiScaleVQ, VQSpec
from lookact.ops.masked import zero_outside
from lookact.seeding import torch_rng

MERGE = 2
"""Cells a side of a patch that becomes one vision token."""


@dataclass(frozen=True)
class WorldModelSpec:
    """Input and network sizes of a world model."""

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
    """Of the ensemble of codebook heads."""
    chunk: int = 4
    action_head: Literal["gaussian", "flow"] = "gaussian"
    std: float = 0.5
    foresight: bool = False
    """The action expert attends to the next frames' tokens that the generation expert predicts."""
    predicted_frames: int = 1
    """Future frames that the generation expert predicts, and that make up the foresight."""


@dataclass(frozen=True)
class WorldModelInputs:
    """Inputs of n steps."""

    frames: Tensor
    """(n, history, cells, d) features of the wrist camera's last frames, the present one last."""
    past: Tensor
    """(n, history − 1, action_dim) the actions between them."""
    state: Tensor
    """(n, state_dim)"""
    text: Tensor
    """(n, text width)"""
    memory: Tensor
    """(n, memory) GRU output after the present frame."""
    head: Tensor
    """(n, cells, d) features of the head camera's present frame."""
    head_seen: Tensor
    """(n,) False where there is no head camera."""
    vision: Tensor | None = None
    """(n, 2, merged, d) features of the wrist's and the head's present frame by a pretrained encoder, if any."""
    foresight: Tensor | None = None
    """(n, frames · tokens) ids of the next frames as predicted without their actions, for the action expert."""


class WorldModel(nn.Module):
    """Frames enter as the features of a frozen VQ tokenizer, whose ids are the prediction targets."""

    state_mask: Tensor
    action_mask: Tensor
    state_mean: Tensor
    state_std: Tensor
    feature_std: Tensor
    pos_understanding: Tensor
    pos_context: Tensor
    pos_action: Tensor
    pos_query: Tensor
    pos_foresight: Tensor
    no_action: Tensor
    pos_frame: Tensor
    pos_foresight_frame: Tensor

    def __init__(
        self,
        spec: WorldModelSpec,
        text_encoder: TextEncoder,
        vision_encoder: PretrainedVision | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.spec, self.text_encoder, self.vision_encoder = spec, text_encoder, vision_encoder
        self.vq = MultiScaleVQ(spec.vq)
        width, latent, cells = spec.width, spec.vq.latent, spec.vq.grid**2
        generator = torch_rng(seed, "world")
        self.vision = nn.Linear(vision_encoder.width if vision_encoder else MERGE * MERGE * latent, width)
        self.understanding = nn.ModuleDict(
            {"text": nn.Linear(text_encoder.width, width), "state": nn.Linear(spec.state_dim, width)}
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
        self.action_head = ActionHead(action, width)
        # the encoders may be pretrained
        own = self.vision, self.understanding, self.generation, self.memory_input, self.attention, self.action_head
        for part in own:
            initialise(part, generator)
        self._init_positions(generator)
        self.codebook_head = CodebookHead(spec.members, width, latent, spec.vq.codes, generator)
        self.critic = ValueHead(width, width)
        if spec.foresight:
            self.foresight = nn.Linear(latent, width)
            initialise(self.foresight, generator)
            for name, size in (("pos_foresight", spec.vq.tokens), ("no_action", 1)):
                setattr(self, name, nn.Parameter(0.5 * torch.randn(size, width, generator=generator)))
        for name, needed in (("pos_frame", True), ("pos_foresight_frame", spec.foresight)):
            # of the frames after the next one: a model of one frame has none
            if needed and spec.predicted_frames > 1:
                drawn = torch.randn(spec.predicted_frames - 1, width, generator=generator)
                setattr(self, name, nn.Parameter(0.5 * drawn))
        self.register_buffer("state_mask", torch.arange(spec.state_dim) < spec.state_size)
        self.register_buffer("action_mask", torch.arange(spec.action_dim) < spec.action_size)
        self.register_buffer("state_mean", torch.zeros(spec.state_dim))
        self.register_buffer("state_std", torch.ones(spec.state_dim))
        self.register_buffer("feature_std", torch.ones(()))
        self.vq.requires_grad_(False)

    @property
    def device(self) -> torch.device:
        return self.state_mean.device

    def features(self, ids: Tensor) -> Tensor:
        """VQ features by cells (..., cells, d) of token ids (..., tokens)."""
        maps = self.vq.features(ids.flatten(0, -2).long()).flatten(2)
        return maps.transpose(1, 2).reshape(*ids.shape[:-1], maps.shape[2], maps.shape[1])

    def pad(self, actions: Tensor) -> Tensor:
        """Actions (..., action_size) as (..., action_dim), zeros behind."""
        return nn.functional.pad(actions, (0, self.spec.action_dim - actions.shape[-1]))

    def pad_state(self, state: Tensor) -> Tensor:
        """States (..., state_size) as (..., state_dim), zeros behind."""
        return nn.functional.pad(state, (0, self.spec.state_dim - state.shape[-1]))

    def update_memory(
        self, frames: Tensor, before: Tensor, state: Tensor, carry: Tensor | None, starts: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Memory update: GRU outputs after each frame (b, t, memory), and the state to carry on.

        frames: (b, t, cells, d); before: (b, t, action_dim) the action that led to each, zeros for an episode's first;
        state: (b, t, state_dim).
        """
        parts = (
            frames.flatten(2) / self.feature_std,
            _unpadded(before, self.action_mask),
            self.normalise_state(state),
        )
        inputs = torch.tanh(self.memory_input(torch.cat(parts, dim=-1)))
        outputs: tuple[Tensor, Tensor] = self.memory(inputs, carry, starts)
        return outputs

    def predict(
        self, inputs: WorldModelInputs, action: Tensor | None, ids: Tensor, action_seen: Tensor | None = None
    ) -> Tensor:
        """Teacher-forced logits (members, n, l, codes) of the next frames; a token is given those before it only.

        action: (n, action_dim) on the present frame, None where it is not yet chosen (foresight); `action_seen` (n,) is
        False on rows that are not told; ids: (n, l) of one frame or of several one after another, up to
        `predicted_frames`. Before a frame's scale stand all earlier frames and its own coarser scales.
        """
        understanding, context = self._understanding_tokens(inputs), self._context_tokens(inputs)
        act = self._action_token(action, action_seen, len(ids))
        frames, cells, queries, baselines = self._frames(ids.long()), inputs.frames[:, -1], [], []
        for number, frame in enumerate(frames):
            coarse, around = self.vq.coarse_features(frame), neighbourhoods(cells, self.vq.spec.scales)
            queries.append(self._query_tokens(around, self._told(act, number), coarse, self.pos_query))
            baselines.append(around[:, :, NEIGHBOURS // 2] - coarse)
            cells = self.features(frame) if number + 1 < len(frames) else cells
        parts = [("understanding", understanding), ("generation", torch.cat([context, act, *queries], dim=1))]
        mask = self._query_mask(understanding.shape[1], context.shape[1], len(frames)).to(ids.device)
        hidden = self._frames(self.attention(parts, mask)[1][:, context.shape[1] + 1 :])
        books = self.vq.codebooks, self.vq.counts, self.vq.spec.scales
        return torch.cat([self.codebook_head(*pair, *books) for pair in zip(hidden, baselines)], dim=2)

    @torch.no_grad()
    def generate(self, inputs: WorldModelInputs, action: Tensor | None, frames: int = 1) -> Tensor:
        """The next frames' tokens (n, frames · tokens) by greedy decoding, scale by scale; no action: foresight."""
        return self.generate_with_hidden(inputs, action, frames)[0]

    @torch.no_grad()
    def generate_with_hidden(
        self, inputs: WorldModelInputs, action: Tensor | None, frames: int = 1
    ) -> tuple[Tensor, Tensor]:
        """The same, and the action token's hidden state (n, width), which has attended to all that is known.

        As `predict`, but what stands before a scale's queries is computed once.
        """
        understanding, context = self._understanding_tokens(inputs), self._context_tokens(inputs)
        act = self._action_token(action, None, len(inputs.state))
        parts = [("understanding", understanding), ("generation", torch.cat([context, act], dim=1))]
        groups = [(understanding.shape[1], [0]), (context.shape[1], [0, 1]), (1, [0, 1, 2])]
        before, known = self.attention.extend(parts, attention_mask(groups).to(self.device), [])
        cells, found = inputs.frames[:, -1], []
        for number in range(frames):
            ids, known = self._generate_frame(cells, self._told(act, number), known)
            found.append(ids)
            cells = self.features(ids) if number + 1 < frames else cells
        return torch.cat(found, dim=1), before[1][:, -1]

    def _generate_frame(self, cells: Tensor, act: Tensor, known: KeyValues) -> tuple[Tensor, KeyValues]:
        """The ids (n, tokens) of the frame after that of features `cells`, and the keys and values with its own."""
        around = neighbourhoods(cells, self.vq.spec.scales)
        ids = torch.zeros(len(cells), self.vq.spec.tokens, dtype=torch.long, device=self.device)
        end = 0
        for scale, side in enumerate(self.vq.spec.scales):
            start, end = end, end + side * side
            coarse, near = self.vq.coarse_features(ids, scale)[:, start:], around[:, start:end]
            queries = self._query_tokens(near, act, coarse, self.pos_query[start:end])
            hidden, known = self.attention.extend([("generation", queries)], None, known)
            books = self.vq.codebooks[scale : scale + 1], self.vq.counts[scale : scale + 1], (side,)
            logits = self.codebook_head(hidden[0], near[:, :, NEIGHBOURS // 2] - coarse, *books)
            ids[:, start:end] = mean_logits(logits).argmax(dim=-1)
        return ids, known

    def with_vision(self, inputs: WorldModelInputs) -> WorldModelInputs:
        """The inputs with what the pretrained encoder sees in the decoded frames; unchanged without one."""
        if self.vision_encoder is None or inputs.vision is not None:
            return inputs
        cells = torch.stack([inputs.frames[:, -1], inputs.head]).flatten(0, 1)
        with torch.no_grad():
            grid = self.vq.spec.grid
            maps = cells.transpose(1, 2).reshape(len(cells), -1, grid, grid)
            found = self.vision_encoder(self.vq.decoder(maps))
        return replace(inputs, vision=torch.stack(found.chunk(2), dim=1))

    def with_foresight(self, inputs: WorldModelInputs) -> WorldModelInputs:
        """The inputs with the next frames as the generation expert predicts them; unchanged without foresight."""
        if not self.spec.foresight or inputs.foresight is not None:
            return inputs
        return replace(inputs, foresight=self.generate(inputs, None, self.spec.predicted_frames))

    def action_hidden(self, inputs: WorldModelInputs, tokens: Tensor) -> Tensor:
        """The action expert's hidden states (n, l, width) of its tokens (n, l, width)."""
        understanding, context = self._understanding_tokens(inputs), self._context_tokens(inputs)
        groups: list[tuple[int, list[int]]] = [(understanding.shape[1], [0]), (context.shape[1], [0, 1])]
        if self.spec.foresight:
            context = torch.cat([context, self._foresight_tokens(self.with_foresight(inputs))], dim=1)
            groups = self._with_scales(groups, self.spec.predicted_frames)
        groups.append((tokens.shape[1], list(range(len(groups) + 1))))
        parts = [("understanding", understanding), ("generation", context), ("action", tokens)]
        hidden: Tensor = self.attention(parts, attention_mask(groups).to(tokens.device))[2]
        return hidden

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """Token ids (n, length) of instructions."""
        return self.text_encoder.tokenize(texts)

    def encode_text(self, ids: Tensor) -> Tensor:
        """Text features (n, text width) of instructions' ids (n, length)."""
        unique, places = torch.unique(ids, dim=0, return_inverse=True)
        # one by one: in a batch the last digits would depend on the other rows
        return torch.cat([self.text_encoder(row[None]) for row in unique])[places]

    def _understanding_tokens(self, inputs: WorldModelInputs) -> Tensor:
        shown, vision = (inputs.frames[:, -1], inputs.head), self.with_vision(inputs).vision
        seen = [self._merge_patches(x) / self.feature_std for x in shown] if vision is None else vision.unbind(1)
        wrist, head = (self.vision(x) for x in seen)
        head = torch.where(inputs.head_seen[:, None, None], head, self.no_head_camera)
        text = self.understanding["text"](inputs.text)[:, None]
        state = self.understanding["state"](self.normalise_state(inputs.state))[:, None]
        tokens: Tensor = torch.cat([wrist, head, text, state], dim=1) + self.pos_understanding
        return tokens

    def _context_tokens(self, inputs: WorldModelInputs) -> Tensor:
        history = inputs.frames.transpose(1, 2).flatten(2) / self.feature_std
        frames = self.generation["frames"](self._merge_patches(history))
        past = self.generation["past"](_unpadded(inputs.past, self.action_mask))
        parts = [frames, past]
        if self.spec.memory:
            parts.append(self.generation["memory"](inputs.memory)[:, None])
        return torch.cat(parts, dim=1) + self.pos_context

    def _action_token(self, action: Tensor | None, seen: Tensor | None, rows: int) -> Tensor:
        """(n, 1, width) of the action on the present frame; where it is not told, the learned vector in its place."""
        if action is None:
            if not self.spec.foresight:
                raise ConfigError("without an action only a model with foresight predicts: set model.foresight")
            return (self.no_action + self.pos_action).expand(rows, 1, -1)
        told = self.generation["action"](_unpadded(action, self.action_mask))[:, None]
        token: Tensor = told if seen is None else torch.where(seen[:, None, None], told, self.no_action)
        return token + self.pos_action

    def _query_tokens(self, around: Tensor, act: Tensor, coarse: Tensor, positions: Tensor) -> Tensor:
        """(n, l, width) of the present features around tokens (n, l, 9, d), the action's token, and coarser scales."""
        # a token's present neighbourhood and the action explain most of its next value
        now = self.generation["present"](around.flatten(2) / self.feature_std) + act + positions
        queries: Tensor = now + self.generation["query"](coarse / self.feature_std)
        return queries

    def _foresight_tokens(self, inputs: WorldModelInputs) -> Tensor:
        """(n, l, width) of the predicted ids: at each token's cells the features up to its own scale."""
        assert inputs.foresight is not None
        parts = []
        for number, ids in enumerate(self._frames(inputs.foresight.long())):
            own = [book[part] for book, part in zip(self.vq.codebooks, self.vq.split_scales(ids))]
            features = self.vq.coarse_features(ids) + torch.cat(own, dim=1)
            tokens = self.foresight(features / self.feature_std) + self.pos_foresight
            parts.append(tokens + self.pos_foresight_frame[number - 1] if number else tokens)
        return torch.cat(parts, dim=1)

    def _frames(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Each frame's part of (n, frames · tokens, ...)."""
        if tokens.shape[1] % self.vq.spec.tokens or tokens.shape[1] > self.spec.predicted_frames * self.vq.spec.tokens:
            known = f"of {self.vq.spec.tokens} tokens, at most {self.spec.predicted_frames}"
            raise ConfigError(f"{tokens.shape[1]} tokens are no whole frames {known}: set model.predicted_frames")
        return torch.split(tokens, self.vq.spec.tokens, dim=1)

    def _told(self, act: Tensor, number: int) -> Tensor:
        """What a frame's queries are told: the action before it, or, from the second on, which frame it is."""
        return self.pos_frame[number - 1 : number, None] if number else act

    def _merge_patches(self, cells: Tensor) -> Tensor:
        """Patch merging: cells (n, cells, d) to (n, cells / 4, 4 d)."""
        side = self.vq.spec.grid // MERGE
        blocks = cells.reshape(len(cells), side, MERGE, side, MERGE, -1).transpose(2, 3)
        return blocks.flatten(3, 5).flatten(1, 2)

    def normalise_state(self, state: Tensor) -> Tensor:
        """States (..., state_dim) by their mean and deviation, zeros in the padding."""
        real = _unpadded(state, self.state_mask)
        return _unpadded((real - self.state_mean) / self.state_std, self.state_mask)

    def _query_mask(self, understanding: int, context: int, frames: int) -> Tensor:
        return attention_mask(self._with_scales([(understanding, [0]), (context, [0, 1]), (1, [0, 1, 2])], frames))

    def _with_scales(self, groups: list[tuple[int, list[int]]], frames: int) -> list[tuple[int, list[int]]]:
        """The groups and one for each frame's scales, which attend to all groups before them and to their own."""
        sizes = [side * side for side in self.vq.spec.scales] * frames
        return [*groups, *((size, list(range(len(groups) + n + 1))) for n, size in enumerate(sizes))]

    def _init_positions(self, generator: torch.Generator) -> None:
        spec, tokens = self.spec, self.vq.spec.tokens
        merged = self.vq.spec.grid**2 // MERGE**2
        context = merged + spec.history - 1 + (spec.memory > 0)
        sizes = {"understanding": 2 * merged + 2, "context": context, "action": 1, "query": tokens}
        for name, size in sizes.items():
            drawn = torch.randn(size, spec.width, generator=generator)
            setattr(self, f"pos_{name}", nn.Parameter(0.5 * drawn))
        self.action_head.init_weights(generator)
        self.no_head_camera = nn.Parameter(torch.randn(1, 1, spec.width, generator=generator))


def mean_logits(logits: Tensor) -> Tensor:
    """Log-probabilities (n, l, v) of the ensemble's mean prediction, from logits (members, n, l, v)."""
    return torch.logsumexp(logits.log_softmax(dim=-1), dim=0) - torch.log(torch.tensor(float(len(logits))))


def _unpadded(x: Tensor, real: Tensor) -> Tensor:
    """x (..., d) with zeros in the padding dimensions, whatever stood there."""
    return zero_outside(x, real.expand(x.shape))
