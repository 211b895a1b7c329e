"""Explorer: a world model as a control policy, with the wrist camera only and a Gaussian action head.

Its carry is the GRU memory and the last frames' features in one vector: (1, b, memory + frames + 1). The last number
says whether the episode has begun; where it has not, the present frame stands in for those before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lookact.batch import ActorCriticOutput, ActorOutput, ControlInputs
from lookact.models.world_model.model import WorldModel, WorldModelInputs

MIN_LOG_STD, MAX_LOG_STD = -2.5, 0.3


@dataclass(frozen=True)
class ExplorerSpec:
    """The explorer's inputs and outputs, as a rollout needs them."""

    history: int
    action_size: int
    cameras: tuple[str, ...] = ("wrist",)


class Explorer(nn.Module):
    """Actor-critic on the action expert of `model`; images are VQ ids, each frame encoded once."""

    frozen_vision = True

    def __init__(self, model: WorldModel, *, stride: int = 1) -> None:
        super().__init__()
        self.model, self.stride = model, stride
        self.spec = ExplorerSpec((model.spec.history - 1) * stride, model.spec.action_size)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def critic(self) -> nn.Module:
        return self.model.critic

    def features(self, images: dict[str, Tensor]) -> dict[str, Tensor]:
        """Ids (b, tokens) of each camera's frames (b, h, w, 3)."""
        return {camera: self.model.vq.encode(frames) for camera, frames in images.items()}

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        return self.model.tokenize(texts)

    def start_carry(self, rows: int) -> Tensor:
        """Zeros: no memory, no frame, not begun."""
        return torch.zeros(1, rows, self._memory_size + self._frames_size + 1, device=self.device)

    def forward(self, inputs: ControlInputs) -> ActorCriticOutput:
        """Means of a chunk (b, chunk, a), values (b,) and what to carry on; images are ids."""
        output = self.actor(inputs)
        return output.with_values(self.value(output.critic_features))

    def actor(self, inputs: ControlInputs) -> ActorOutput:
        """Means of a chunk and what to carry on."""
        observed, carry = self.observe(inputs)
        head = self.model.action_head
        hidden = self.model.action_hidden(observed, head.query_tokens(len(inputs.state)))
        log_std = head.log_std.clamp(MIN_LOG_STD, MAX_LOG_STD)
        return ActorOutput(head.mean(hidden), log_std, hidden.mean(dim=1), carry)

    def value(self, critic_features: Tensor) -> Tensor:
        """Values (b,) of the critic features."""
        values: Tensor = self.model.critic(critic_features)
        return values

    @torch.no_grad()
    def observe(self, inputs: ControlInputs) -> tuple[WorldModelInputs, Tensor]:
        """The world model's inputs of the present step, and the carry after it."""
        assert inputs.carry is not None, "an explorer carries a memory: begin with start_carry"
        model, rows = self.model, len(inputs.state)
        sizes = [self._memory_size, self._frames_size, 1]
        memory, frames, begun = torch.split(inputs.carry[0], sizes, dim=1)
        present = model.features(inputs.images["wrist"])
        past = torch.where(begun > 0, frames, present.flatten(1).repeat(1, self.spec.history))
        ring = past.reshape(rows, self.spec.history, *present.shape[1:])
        actions = model.pad(inputs.history)
        state = model.pad_state(inputs.state)
        layers = memory.reshape(rows, model.memory.layers, -1).transpose(0, 1).contiguous()
        memory_output, after = model.update_memory(present[:, None], actions[:, -1:], state[:, None], layers)
        observed = WorldModelInputs(
            frames=torch.cat([ring[:, :: self.stride], present[:, None]], dim=1),
            past=actions[:, :: self.stride],
            state=state,
            text=model.encode_text(inputs.text_ids),
            memory=memory_output[:, 0],
            head=torch.zeros_like(present),
            head_seen=torch.zeros(rows, dtype=torch.bool, device=self.device),
        )
        later = torch.cat([ring[:, 1:], present[:, None]], dim=1).flatten(1)
        carry = torch.cat([after.transpose(0, 1).flatten(1), later, torch.ones_like(begun)], dim=1)
        return observed, carry[None]

    @property
    def _memory_size(self) -> int:
        return self.model.memory.layers * self.model.memory.hidden

    @property
    def _frames_size(self) -> int:
        spec = self.model.spec.vq
        return self.spec.history * spec.grid**2 * spec.latent
