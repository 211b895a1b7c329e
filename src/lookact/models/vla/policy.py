"""A vision-language-action policy: frames, an instruction, the arm's own state and its last actions in, an action out.

The action is drawn from a diagonal Gaussian around what the fused tokens say. A chunked policy foretells `chunk`
actions, of which the first is what it does, scores and learns from by reward; the others only sharpen cloning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from lookact.batch import ActorCriticOutput, ActorOutput, ControlInputs, Scores, SequenceInputs
from lookact.models.actor_critic import ValueHead, draw, score
from lookact.models.vla.encoders import initialise
from lookact.models.vla.fusion import Fusion
from lookact.models.vla.text import TextEncoder
from lookact.models.vla.vision import VisionEncoder
from lookact.seeding import torch_rng

NARROWEST, WIDEST = math.log(0.01), math.log(1.0)
"""Bounds of a learned log standard deviation."""
POOLED = 128
"""Numbers that all glances together come to, where lessons in seeing put what they teach."""


@dataclass(frozen=True)
class PolicySpec:
    """What a policy is shown and gives, and the size of what lies between."""

    cameras: tuple[str, ...]
    state_size: int
    action_size: int
    """Numbers of one decision."""
    history: int = 5
    chunk: int = 1
    """Decisions foretold at once; the first is taken."""
    width: int = 64
    layers: int = 2
    heads: int = 4
    value_layers: int = 1
    spread: Literal["fixed", "learned", "decay"] = "fixed"
    std: float = 0.2
    last_std: float = 0.05
    """Where a decaying standard deviation ends."""
    memory: int = 0
    """Width of the GRU that carries on from step to step; 0: none."""


class VLA(nn.Module):
    """DINOv2, BERT, proprioception and action history, fused by a transformer; the critic has a trunk of its own."""

    state_mean: Tensor
    state_std: Tensor
    progress: Tensor

    def __init__(self, spec: PolicySpec, eyes: VisionEncoder, reader: TextEncoder, *, seed: int = 0) -> None:
        super().__init__()
        self.spec, self.vision_encoder, self.text_encoder = spec, eyes, reader
        generator, width = torch_rng(seed, "fusion"), spec.width
        self.entries = nn.ModuleDict(
            {
                "glance": nn.Linear(eyes.width + 2, width),
                "pooled": nn.Linear(POOLED, width),
                "text": nn.Linear(reader.width, width),
                "state": nn.Linear(spec.state_size, width),
                "action": nn.Linear(spec.action_size, width),
            }
        )
        glances = len(spec.cameras) * eyes.spec.glances
        self.pooled = nn.Sequential(nn.Linear(glances * (eyes.width + 2) + spec.state_size, POOLED), nn.GELU())
        tokens = glances + 3 + spec.history
        self.places = nn.Parameter(torch.zeros(tokens, width))
        self.fusion = Fusion(width, spec.layers, spec.heads, generator)
        self.head = nn.Linear(width, spec.chunk * spec.action_size)
        self.critic = nn.ModuleDict(
            {"trunk": Fusion(width, spec.value_layers, spec.heads, generator), "head": ValueHead(width, width)}
        )
        self.log_std = nn.Parameter(torch.full((spec.action_size,), math.log(spec.std)), spec.spread == "learned")
        self._start(generator)

    def _start(self, generator: torch.Generator) -> None:
        spec = self.spec
        for module in (self.entries, self.head, self.pooled):
            initialise(module, generator)
        initialise(self.critic["head"].inner, generator)  # type: ignore[arg-type]
        with torch.no_grad():
            # a fresh policy is near rest
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
        """Whether `features` of a frame never change, so that they may be kept in its place."""
        return self.vision_encoder.frozen

    @property
    def device(self) -> torch.device:
        return self.places.device

    def freeze_encoders(self) -> None:
        """VisionEncoder and reader stay as they are from now on."""
        self.vision_encoder.requires_grad_(False)
        self.text_encoder.requires_grad_(False)

    def set_statistics(self, mean: Tensor, std: Tensor) -> None:
        """States are seen as multiples of `std` (s,) around `mean` (s,)."""
        self.state_mean.copy_(mean)
        self.state_std.copy_(std.clamp_min(1e-3))

    def normalised(self, state: Tensor) -> Tensor:
        """States (b, s) as `set_statistics` says they are seen."""
        return (state - self.state_mean) / self.state_std

    def set_progress(self, share: float) -> None:
        """How much of training is over, 0 to 1: a decaying standard deviation follows it."""
        self.progress.fill_(min(max(share, 0.0), 1.0))

    def features(self, images: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Camera to frames (b, h, w, 3) uint8 -> (b, k, d): what a frozen encoder makes of them."""
        with torch.inference_mode():
            found = self.vision_encoder.features(
                {camera: images[camera].to(self.device) for camera in self.spec.cameras}
            )
        # learning may keep a copy, but not what was made without any thought of gradients
        return {camera: tokens.clone() for camera, tokens in found.items()}

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """(b, n) ids of instructions, padded."""
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
        """Means and the memory after one step a row."""
        tokens = self._tokens(inputs)
        seen, carry = self.fusion(tokens), None
        if self.spec.memory:
            before = self.start_carry(len(seen)) if inputs.carry is None else inputs.carry
            assert before is not None
            after = self.memory(seen, before[0])
            seen, carry = seen + self.recall(after), after.unsqueeze(0)
        mean = self.head(seen).unflatten(-1, (self.spec.chunk, self.spec.action_size))
        # the critic learns from the tokens but does not shape them: it must not spoil what was cloned
        return ActorOutput(mean, self.spread(), tokens.detach(), carry)

    def value(self, critic_features: Tensor) -> Tensor:
        """Values (b,) of what `actor` met."""
        values: Tensor = self.critic["head"](self.critic["trunk"](critic_features))
        return values

    def spread(self) -> Tensor:
        """(a,) log standard deviation of an action."""
        if self.spec.spread == "decay":
            ratio = math.log(self.spec.last_std / self.spec.std)
            return self.log_std + ratio * self.progress
        return self.log_std.clamp(NARROWEST, WIDEST)

    @torch.no_grad()
    def act(
        self, inputs: ControlInputs, *, generator: torch.Generator | None, greedy: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Actions (b, a) on what is seen, their log-probs (b,) and values (b,); `inputs.actions` are not looked at."""
        output = self(inputs)
        return draw(output, generator=generator, greedy=greedy)

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

    def see(self, images: Mapping[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        """All glances (b, n, d) at frames or their features, and the pooled (b, g) of them and the state together."""
        glances = self.vision_encoder(images)
        seen = torch.cat([glances[camera] for camera in self.spec.cameras], dim=1)
        return seen, self.pooled(torch.cat([seen.flatten(1), self.normalised(state)], dim=1))

    def _tokens(self, inputs: ControlInputs) -> Tensor:
        """(b, n, width): glances by camera, their pooled, the instruction, the state, the last actions."""
        seen, pooled = self.see(inputs.images, inputs.state)
        parts = [
            self.entries["glance"](seen),
            self.entries["pooled"](pooled).unsqueeze(1),
            self.entries["text"](self.text_encoder(inputs.text_ids)).unsqueeze(1),
            self.entries["state"](self.normalised(inputs.state)).unsqueeze(1),
            # a world cuts actions to -1..1: what was done is what it made of them
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
