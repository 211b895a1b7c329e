"""A vision-language-action policy: frames, an instruction, the arm's own state and its last actions in, an action out.

A transformer over all tokens gives the mean of a diagonal Gaussian from which the action is drawn, or the hidden state
from which a flow denoises it. A policy with action chunks predicts several: the first is executed. A Gaussian policy
scores it alone, and the rest are an auxiliary BC target; a flow policy draws and scores its whole denoising chain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.batch import ActorCriticOutput, ActorOutput, ControlInputs, Scores, SequenceInputs
from lookact.models.actor_critic import ValueHead, draw, sample_gaussian, score
from lookact.models.flow_head import FlowHead, FlowNoise
from lookact.models.vla.encoders import TextEncoder, VisionEncoder, initialise
from lookact.seeding import torch_rng

NARROWEST, WIDEST = math.log(0.01), math.log(1.0)
"""Bounds of a learned log standard deviation."""
POOLED = 128
"""Width of the pooled feature of all cameras, which vision pretraining trains."""


@dataclass(frozen=True)
class PolicySpec:
    """Observations, actions and sizes of a policy."""

    cameras: tuple[str, ...]
    state_size: int
    action_size: int
    history: int = 5
    action_chunk: int = 1
    """Actions predicted at once; the first is executed."""
    width: int = 64
    layers: int = 2
    heads: int = 4
    value_layers: int = 1
    std_schedule: Literal["fixed", "learned", "decay"] = "fixed"
    std: float = 0.2
    final_std: float = 0.05
    """Where a decaying standard deviation ends."""
    memory: int = 0
    """Hidden size of the GRU over steps; 0: none."""
    action_head: Literal["gaussian", "flow"] = "gaussian"
    flow_steps: int = 4
    """Euler steps from noise to an action."""
    flow_noise: FlowNoise = "learned"
    true_state: int = 0
    """Numbers of the simulator's true state, which the critic alone is given (asymmetric); 0: it has the tokens."""
    action_bounds: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """What the policy's -1 and 1 stand for, by action dimension; None: themselves."""

    @property
    def sample_size(self) -> int:
        """Numbers that are drawn and scored for one action: its own, or those of the chain that leads to it."""
        if self.action_head == "gaussian":
            return self.action_size
        return (self.flow_steps + 1) * self.action_chunk * self.action_size


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm, over (b, n, d)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, tokens: Tensor, queries: int | None = None) -> Tensor:
        """(b, n, d) -> (b, n, d), or only the first `queries` tokens, which attend to all."""
        asked, normed, width = tokens, self.before(tokens), self.width
        if queries is None:
            query, key, value = self.project(normed).chunk(3, dim=-1)
        else:
            asked, (weight, bias) = tokens[:, :queries], (self.project.weight, self.project.bias)
            query = functional.linear(normed[:, :queries], weight[:width], bias[:width])
            key, value = functional.linear(normed, weight[width:], bias[width:]).chunk(2, dim=-1)
        # written out: for a few dozen tokens the fused kernel takes longer, forward and backward
        scores = self._heads(query * (width // self.heads) ** -0.5) @ self._heads(key).mT
        mixed = scores.softmax(dim=-1) @ self._heads(value)
        asked = asked + self.output(mixed.transpose(1, 2).flatten(2))
        outcome: Tensor = asked + self.inner(self.between(asked))
        return outcome

    def _heads(self, tokens: Tensor) -> Tensor:
        """(b, n, d) -> (b, heads, n, d / heads)"""
        return tokens.view(*tokens.shape[:2], self.heads, -1).transpose(1, 2)


class Fusion(nn.Module):
    """Transformer with a readout token: (b, n, d) tokens -> (b, d)."""

    def __init__(self, width: int, layers: int, heads: int, generator: torch.Generator) -> None:
        super().__init__()
        self.readout = nn.Parameter(torch.zeros(1, 1, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        initialise(self.blocks, generator)
        nn.init.normal_(self.readout, std=width**-0.5, generator=generator)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = torch.cat([self.readout.expand(len(tokens), -1, -1), tokens], dim=1)
        for block in self.blocks[:-1]:
            tokens = block(tokens)
        # after the last block only the readout is used
        outcome: Tensor = self.norm(self.blocks[-1](tokens, queries=1)[:, 0])
        return outcome


class VLA(nn.Module):
    """DINOv2, BERT, proprioception and action history, fused by a transformer; the critic has a trunk of its own."""

    state_mean: Tensor
    state_std: Tensor
    progress: Tensor

    def __init__(
        self, spec: PolicySpec, vision_encoder: VisionEncoder, text_encoder: TextEncoder, *, seed: int = 0
    ) -> None:
        super().__init__()
        self.spec, self.vision_encoder, self.text_encoder = spec, vision_encoder, text_encoder
        generator, width = torch_rng(seed, "fusion"), spec.width
        self.entries = nn.ModuleDict(
            {
                "pool": nn.Linear(vision_encoder.width + 2, width),
                "pooled": nn.Linear(POOLED, width),
                "text": nn.Linear(text_encoder.width, width),
                "state": nn.Linear(spec.state_size, width),
                "action": nn.Linear(spec.action_size, width),
            }
        )
        queries = len(spec.cameras) * vision_encoder.spec.pool_queries
        self.pooled = nn.Sequential(
            nn.Linear(queries * (vision_encoder.width + 2) + spec.state_size, POOLED), nn.GELU()
        )
        tokens = queries + 3 + spec.history
        self.places = nn.Parameter(torch.zeros(tokens, width))
        self.fusion = Fusion(width, spec.layers, spec.heads, generator)
        chunk = spec.action_chunk * spec.action_size
        self.head: Any = nn.Linear(width, chunk)
        if spec.action_head == "flow":
            self.head = FlowHead(width, chunk, steps=spec.flow_steps, noise=spec.flow_noise)
        trunk: nn.Module = Fusion(width, spec.value_layers, spec.heads, generator)
        if spec.true_state:
            trunk = nn.Sequential(nn.Linear(spec.true_state, POOLED), nn.SiLU(), nn.Linear(POOLED, width), nn.SiLU())
            initialise(trunk, generator)
        self.critic = nn.ModuleDict({"trunk": trunk, "head": ValueHead(width, width)})
        self.log_std = nn.Parameter(torch.full((spec.action_size,), math.log(spec.std)), spec.std_schedule == "learned")
        self._start(generator)

    def _start(self, generator: torch.Generator) -> None:
        spec = self.spec
        for module in (self.entries, self.head, self.pooled):
            initialise(module, generator)
        initialise(self.critic["head"].inner, generator)  # type: ignore[arg-type]
        with torch.no_grad():
            # a fresh policy hardly moves
            if spec.action_head == "flow":
                self.head.init_weights()
            else:
                self.head.weight.mul_(0.1)
            self.places.normal_(0.0, spec.width**-0.5, generator=generator)
        if spec.memory:
            self.memory = nn.GRUCell(spec.width, spec.memory)
            self.recall = nn.Linear(spec.memory, spec.width)
            for parameter in (*self.memory.parameters(), *self.recall.parameters()):
                nn.init.uniform_(parameter, -(spec.memory**-0.5), spec.memory**-0.5, generator=generator)
        self.register_buffer("state_mean", torch.zeros(spec.state_size))
        self.register_buffer("state_std", torch.ones(spec.state_size))
        self.register_buffer("progress", torch.zeros(()))

    @property
    def frozen_vision(self) -> bool:
        """Whether `features` of a frame never change, so that they may be stored in its place."""
        return self.vision_encoder.frozen

    @property
    def device(self) -> torch.device:
        return self.places.device

    def freeze_encoders(self) -> None:
        """Train neither encoder from now on."""
        self.vision_encoder.requires_grad_(False)
        self.text_encoder.requires_grad_(False)

    def set_statistics(self, mean: Tensor, std: Tensor) -> None:
        """Normalise states by `mean` (s,) and `std` (s,)."""
        self.state_mean.copy_(mean)
        self.state_std.copy_(std.clamp_min(1e-3))

    def normalised(self, state: Tensor) -> Tensor:
        """States (b, s), normalised."""
        return (state - self.state_mean) / self.state_std

    def set_progress(self, share: float) -> None:
        """Fraction of training done, 0 to 1: a decaying standard deviation follows it."""
        self.progress.fill_(min(max(share, 0.0), 1.0))

    def features(self, images: Mapping[str, Tensor], text_ids: Tensor) -> dict[str, Tensor]:
        """Camera to frames (b, h, w, 3) uint8, with instructions (b, n) -> (b, k, d): features of a frozen encoder."""
        with torch.inference_mode():
            text = self.text_encoder(text_ids.to(self.device)) if self.text_encoder.frozen else None
            found = self.vision_encoder.features(
                {camera: images[camera].to(self.device) for camera in self.spec.cameras}, text
            )
        # a copy may be learned from, a tensor of inference mode may not
        return {camera: tokens.clone() for camera, tokens in found.items()}

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """(b, n) token ids of instructions, padded."""
        return self.text_encoder.tokenize(texts).to(self.device)

    def start_carry(self, rows: int) -> Tensor | None:
        """(1, rows, hidden) zeros: the memory before an episode's first step; None without memory."""
        return torch.zeros(1, rows, self.spec.memory, device=self.device) if self.spec.memory else None

    def forward(self, inputs: ControlInputs) -> ActorCriticOutput:
        """Means, values and the memory after one step a row."""
        # the class's own: a sharded policy has hooks on its methods, and those must not nest
        output = VLA.actor(self, inputs)
        return output.with_values(VLA.value(self, output.critic_features))

    def actor(self, inputs: ControlInputs) -> ActorOutput:
        """Means and the memory after one step a row; a flow policy's are those of the chain in `inputs.actions`."""
        hidden, tokens, carry = self.hidden(inputs)
        if self.spec.action_head == "flow":
            mean, log_std = self.head.score(hidden, self._chunk_log_std(), inputs.actions)
            return ActorOutput(mean.unsqueeze(1), log_std, tokens, carry)
        mean = self.head(hidden).unflatten(-1, (self.spec.action_chunk, self.spec.action_size))
        return ActorOutput(mean, self.action_log_std(), tokens, carry)

    def sample(self, inputs: ControlInputs, noise: Tensor) -> tuple[Tensor, ActorOutput]:
        """What is drawn from standard normal noise (b, sample_size), and the output that scores it."""
        if self.spec.action_head == "gaussian":
            return sample_gaussian(self, inputs, noise)
        hidden, tokens, carry = self.hidden(inputs)
        chain, mean, log_std = self.head.sample(hidden, self._chunk_log_std(), noise)
        return chain, ActorOutput(mean.unsqueeze(1), log_std, tokens, carry)

    def executed(self, actions: Tensor) -> Tensor:
        """The action (b, a) to be done of what was drawn: a chain ends in a chunk, whose first action is executed."""
        spec = self.spec
        if spec.action_head == "flow":
            last = actions.shape[-1] - spec.action_chunk * spec.action_size
            actions = actions[..., last : last + spec.action_size]
        if spec.action_bounds is None:
            return actions
        bounds = torch.tensor(spec.action_bounds).to(actions)
        return torch.lerp(bounds[0], bounds[1], (actions.clamp(-1.0, 1.0) + 1) / 2)

    def normalise_actions(self, actions: Tensor) -> Tensor:
        """Actions (..., a) as they are done, as the policy knows them: in -1..1 between its bounds."""
        if self.spec.action_bounds is None:
            return actions
        bounds = torch.tensor(self.spec.action_bounds).to(actions)
        return (actions - bounds[0]) / (bounds[1] - bounds[0]) * 2 - 1

    def hidden(self, inputs: ControlInputs) -> tuple[Tensor, Tensor, Tensor | None]:
        """The action head's input (b, d), the critic's input, and the memory after one step a row."""
        tokens = self._tokens(inputs)
        hidden, carry = self.fusion(tokens), None
        if self.spec.memory:
            before = self.start_carry(len(hidden)) if inputs.carry is None else inputs.carry
            assert before is not None
            after = self.memory(hidden, before[0])
            hidden, carry = hidden + self.recall(after), after.unsqueeze(0)
        # the critic's gradient stops at the tokens: it must not spoil what was cloned
        return hidden, self._true_state(inputs) if self.spec.true_state else tokens.detach(), carry

    def _true_state(self, inputs: ControlInputs) -> Tensor:
        """(b, f) the critic's input; zeros where nobody asks for values, as on a real robot."""
        known = inputs.true_state
        return inputs.state.new_zeros(len(inputs.state), self.spec.true_state) if known is None else known

    def value(self, critic_features: Tensor) -> Tensor:
        """Values (b,) of the actor's tokens (b, n, d), or of true states (b, f)."""
        values: Tensor = self.critic["head"](self.critic["trunk"](critic_features))
        return values

    def action_log_std(self) -> Tensor:
        """(a,) log standard deviation of an action."""
        if self.spec.std_schedule == "decay":
            ratio = math.log(self.spec.final_std / self.spec.std)
            return self.log_std + ratio * self.progress
        return self.log_std.clamp(NARROWEST, WIDEST)

    def _chunk_log_std(self) -> Tensor:
        return self.action_log_std().repeat(self.spec.action_chunk)

    @torch.no_grad()
    def act(
        self, inputs: ControlInputs, *, generator: torch.Generator | None, greedy: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Actions (b, a) or chains, their log-probs (b,) and values (b,); `inputs.actions` are not used."""
        if self.spec.action_head == "gaussian":
            return draw(self(inputs), generator=generator, greedy=greedy)
        shape = len(inputs.state), self.spec.sample_size
        noise = torch.zeros(shape) if greedy else torch.randn(shape, generator=generator)
        chain, output = self.sample(inputs, noise.to(self.device))
        scored = output.with_values(self.value(output.critic_features))
        return chain, score(scored, chain).logprobs[:, 0], scored.values

    def evaluate(self, inputs: ControlInputs) -> Scores:
        """Log-probs, entropy and values (b, 1) of the actions taken."""
        return score(self(inputs), inputs.actions)

    def evaluate_windows(self, inputs: SequenceInputs) -> tuple[Tensor, Scores]:
        """Means (b, t, chunk, a) and scores (b, t) of windows of steps, the memory carried on inside each."""
        carry, outputs = inputs.carry, []
        for step in range(inputs.starts.shape[1]):
            carry = carry.masked_fill(inputs.starts[:, step].view(1, -1, 1), 0.0)
            output = self(_step_of(inputs.steps, step, carry))
            outputs.append(output)
            carry = output.carry if output.carry is not None else carry
        scores = [score(output, inputs.steps.actions[:, step]) for step, output in enumerate(outputs)]
        joined = Scores(
            torch.cat([each.logprobs for each in scores], dim=1),
            torch.cat([each.entropy for each in scores], dim=1),
            torch.stack([output.values for output in outputs], dim=1),
        )
        return torch.stack([output.mean for output in outputs], dim=1), joined

    def hidden_windows(self, inputs: SequenceInputs) -> Tensor:
        """The action head's inputs (b, t, d) over windows of steps, the memory carried on inside each."""
        carry, found = inputs.carry, []
        for step in range(inputs.starts.shape[1]):
            carry = carry.masked_fill(inputs.starts[:, step].view(1, -1, 1), 0.0)
            hidden, _, after = self.hidden(_step_of(inputs.steps, step, carry))
            found.append(hidden)
            carry = carry if after is None else after
        return torch.stack(found, dim=1)

    def encode(self, images: Mapping[str, Tensor], text: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Pooled tokens (b, n, d) of all cameras' frames or features, and one feature (b, g) of them and the state.

        `text` (b, e) is the encoded instruction.
        """
        pooled = self.vision_encoder(images, text)
        tokens = torch.cat([pooled[camera] for camera in self.spec.cameras], dim=1)
        return tokens, self.pooled(torch.cat([tokens.flatten(1), self.normalised(state)], dim=1))

    def _tokens(self, inputs: ControlInputs) -> Tensor:
        """(b, n, width): pooled tokens by camera, their joint feature, instruction, state, action history."""
        text = self.text_encoder(inputs.text_ids)
        tokens, pooled = self.encode(inputs.images, text, inputs.state)
        parts = [
            self.entries["pool"](tokens),
            self.entries["pooled"](pooled).unsqueeze(1),
            self.entries["text"](text).unsqueeze(1),
            self.entries["state"](self.normalised(inputs.state)).unsqueeze(1),
            # environments clip actions to their bounds
            self.entries["action"](inputs.history.clamp(-1.0, 1.0)),
        ]
        return torch.cat(parts, dim=1) + self.places


def _step_of(steps: ControlInputs, step: int, carry: Tensor) -> ControlInputs:
    """One step of windows, with the memory before it."""
    return replace(
        steps,
        actions=steps.actions[:, step],
        state=steps.state[:, step],
        images={camera: frames[:, step] for camera, frames in steps.images.items()},
        text_ids=steps.text_ids[:, step],
        history=steps.history[:, step],
        carry=carry,
    )
