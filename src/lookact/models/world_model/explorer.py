"""A world model as a control policy: it sees through the wrist camera alone and draws actions from a Gaussian.

What it carries from step to step is its memory and its last frames, in one vector: (1, b, memory + frames + 1). The
last number says whether the episode has begun; where it has not, the present frame stands in for those before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lookact.batch import ControlInputs
from lookact.models.actor_critic import ActorCriticOutput, ActorOutput
from lookact.models.world_model.model import Scene, WorldModel

QUIETEST, LOUDEST = -2.5, 0.3
"""Bounds of the log standard deviation."""


@dataclass(frozen=True)
class ExplorerSpec:
    """What a rollout must know of an explorer."""

    history: int
    action_size: int
    cameras: tuple[str, ...] = ("wrist",)


class Explorer(nn.Module):
    """Steps of the action expert; frames come in as tokens, seen once."""

    frozen_vision = True

    def __init__(self, world: WorldModel, *, stride: int = 1) -> None:
        super().__init__()
        self.world, self.stride = world, stride
        self.spec = ExplorerSpec((world.spec.history - 1) * stride, world.spec.action_size)

    @property
    def device(self) -> torch.device:
        return self.world.device

    @property
    def critic(self) -> nn.Module:
        return self.world.critic

    def features(self, images: dict[str, Tensor]) -> dict[str, Tensor]:
        """Ids (b, tokens) of each camera's frames (b, h, w, 3)."""
        return {camera: self.world.vq.encode(frames) for camera, frames in images.items()}

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        return self.world.read(texts)

    def start_carry(self, rows: int) -> Tensor:
        """Zeros: no memory, no frame, not begun."""
        return torch.zeros(1, rows, self._memory_size + self._frames_size + 1, device=self.device)

    def forward(self, inputs: ControlInputs) -> ActorCriticOutput:
        """Means of a chunk (b, chunk, a), values (b,) and what to carry on; images are ids."""
        output = self.actor(inputs)
        return output.with_values(self.value(output.critic_features))

    def actor(self, inputs: ControlInputs) -> ActorOutput:
        """Means of a chunk and what to carry on."""
        scene, carry = self.look(inputs)
        actions = self.world.actions
        hidden = self.world.decide(scene, actions.asked(len(inputs.state)))
        return ActorOutput(actions.mean(hidden), actions.log_std.clamp(QUIETEST, LOUDEST), hidden.mean(dim=1), carry)

    def value(self, critic_features: Tensor) -> Tensor:
        """Values (b,) of what the expert was thinking."""
        values: Tensor = self.world.critic(critic_features)
        return values

    @torch.no_grad()
    def look(self, inputs: ControlInputs) -> tuple[Scene, Tensor]:
        """What is seen and remembered, and the carry after it."""
        assert inputs.carry is not None, "an explorer carries a memory: begin with start_carry"
        world, rows = self.world, len(inputs.state)
        sizes = [self._memory_size, self._frames_size, 1]
        memory, frames, begun = torch.split(inputs.carry[0], sizes, dim=1)
        present = world.features(inputs.images["wrist"])
        known = torch.where(begun > 0, frames, present.flatten(1).repeat(1, self.spec.history))
        ring = known.reshape(rows, self.spec.history, *present.shape[1:])
        done = world.pad(inputs.history)
        state = world.pad_state(inputs.state)
        layers = memory.reshape(rows, world.memory.layers, -1).transpose(0, 1).contiguous()
        remembered, after = world.remember(present[:, None], done[:, -1:], state[:, None], layers)
        scene = Scene(
            frames=torch.cat([ring[:, :: self.stride], present[:, None]], dim=1),
            past=done[:, :: self.stride],
            state=state,
            text=world.words(inputs.text_ids),
            remembered=remembered[:, 0],
            head=torch.zeros_like(present),
            head_seen=torch.zeros(rows, dtype=torch.bool, device=self.device),
        )
        later = torch.cat([ring[:, 1:], present[:, None]], dim=1).flatten(1)
        carry = torch.cat([after.transpose(0, 1).flatten(1), later, torch.ones_like(begun)], dim=1)
        return scene, carry[None]

    @property
    def _memory_size(self) -> int:
        return self.world.memory.layers * self.world.memory.hidden

    @property
    def _frames_size(self) -> int:
        spec = self.world.spec.vq
        return self.spec.history * spec.grid**2 * spec.latent
