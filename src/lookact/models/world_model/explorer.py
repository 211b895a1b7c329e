"""Explorer: a world model as a control policy, with a Gaussian or a flow action head; unless told, by the wrist camera.

Its carry is the GRU memory and the last frames' features in one vector: (1, b, memory + frames + 1). The last number
says whether the episode has begun; where it has not, the present frame stands in for those before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lookact.batch import ActorCriticOutput, ActorOutput, ControlInputs
from lookact.models.actor_critic import sample_gaussian
from lookact.models.world_model.heads import EULER_STEPS
from lookact.models.world_model.model import WorldModel, WorldModelInputs
from lookact.ops.flow import euler_step, sample_chain, score_chain

MIN_LOG_STD, MAX_LOG_STD = -2.5, 0.3


@dataclass(frozen=True)
class ExplorerSpec:
    """The explorer's inputs and outputs, as a rollout needs them."""

    history: int
    action_size: int
    sample_size: int
    """Numbers drawn for an action: its own, or a denoising chain's."""
    cameras: tuple[str, ...] = ("wrist",)


class Explorer(nn.Module):
    """Actor-critic on the action expert of `model`; images are VQ ids, each frame encoded once."""

    frozen_vision = True

    def __init__(
        self,
        model: WorldModel,
        *,
        stride: int = 1,
        cameras: tuple[str, ...] = ("wrist",),
        detach_critic: bool = False,
    ) -> None:
        """With `detach_critic` the critic learns from the actor's features and does not change them."""
        super().__init__()
        self.model, self.stride, self.detach_critic = model, stride, detach_critic
        size, self.flow = model.spec.action_size, model.spec.action_head == "flow"
        self.chunk_size = model.spec.chunk * size
        drawn = (EULER_STEPS + 1) * self.chunk_size if self.flow else size
        self.spec = ExplorerSpec((model.spec.history - 1) * stride, size, drawn, cameras)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def critic(self) -> nn.Module:
        return self.model.critic

    def features(self, images: dict[str, Tensor], text_ids: Tensor) -> dict[str, Tensor]:
        """Ids (b, tokens) of each camera's frames (b, h, w, 3), whatever the instruction."""
        return {camera: self.model.vq.encode(frames) for camera, frames in images.items()}

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        return self.model.tokenize(texts)

    def start_carry(self, rows: int) -> Tensor:
        """Zeros: no memory, no frame, not begun."""
        return torch.zeros(1, rows, self._memory_size + self._frames_size + 1, device=self.device)

    def forward(self, inputs: ControlInputs) -> ActorCriticOutput:
        """Means of a chunk (b, chunk, a), values (b,) and what to carry on; images are ids."""
        output = self.actor(inputs)
        features = output.critic_features
        return output.with_values(self.value(features.detach() if self.detach_critic else features))

    def actor(self, inputs: ControlInputs) -> ActorOutput:
        """Means of a chunk, or of the chain in `inputs.actions`, and what to carry on."""
        observed, carry = self.observe(inputs)
        head = self.model.action_head
        if self.flow:
            rows = repeat_rows(observed, EULER_STEPS)
            chain = inputs.actions.view(len(inputs.actions), -1, self.chunk_size)
            mean, log_std = (part.flatten(1) for part in score_chain(partial(self._step, rows), chain))
            return ActorOutput(mean.unsqueeze(1), log_std, self._flow_features(observed), carry)
        hidden = self.model.action_hidden(observed, head.query_tokens(len(inputs.state)))
        log_std = head.log_std.clamp(MIN_LOG_STD, MAX_LOG_STD)
        return ActorOutput(head.mean(hidden), log_std, hidden.mean(dim=1), carry)

    def sample(self, inputs: ControlInputs, noise: Tensor) -> tuple[Tensor, ActorOutput]:
        """Actions (b, a), or the chains that lead to them, from noise, and the output that scores them."""
        if not self.flow:
            return sample_gaussian(self, inputs, noise)
        observed, carry = self.observe(inputs)
        found = sample_chain(partial(self._step, observed), noise.view(len(noise), -1, self.chunk_size))
        chain, mean, log_std = (part.flatten(1) for part in found)
        return chain, ActorOutput(mean.unsqueeze(1), log_std, self._flow_features(observed), carry)

    def executed(self, actions: Tensor) -> Tensor:
        """The action (..., a) of what was drawn: the first of the chunk that a chain ends in."""
        if not self.flow:
            return actions
        last = actions.shape[-1] - self.chunk_size
        return actions[..., last : last + self.spec.action_size]

    def _step(self, observed: WorldModelInputs, x: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """Flow-Noise: an Euler step towards the action, of the head's standard deviation over all steps together."""
        model, head = self.model, self.model.action_head
        chunk = model.pad(x.view(len(x), model.spec.chunk, -1))
        velocity = head.velocity(model.action_hidden(observed, head.flow_tokens(chunk, time))).flatten(1)
        log_std = head.log_std.clamp(MIN_LOG_STD, MAX_LOG_STD) - 0.5 * math.log(EULER_STEPS)
        return euler_step(x, velocity, steps=EULER_STEPS), log_std.repeat(model.spec.chunk).expand_as(x)

    def _flow_features(self, observed: WorldModelInputs) -> Tensor:
        """The critic's input, which no noise may reach: the hidden state where the flow begins, of an empty chunk."""
        rows = len(observed.state)
        nothing = torch.zeros(rows, self.model.spec.chunk, self.model.spec.action_dim, device=self.device)
        tokens = self.model.action_head.flow_tokens(nothing, torch.ones(rows, device=self.device))
        return self.model.action_hidden(observed, tokens).mean(dim=1)

    @torch.no_grad()
    def begin_with(self, std: float | None) -> None:
        """Set the standard deviation of actions; None leaves it."""
        if std is not None:
            self.model.action_head.log_std.fill_(math.log(std))

    def normalise_actions(self, actions: Tensor) -> Tensor:
        return actions

    def value(self, critic_features: Tensor) -> Tensor:
        """Values (b,) of the critic features."""
        values: Tensor = self.model.critic(critic_features)
        return values

    @torch.no_grad()
    def observe(self, inputs: ControlInputs) -> tuple[WorldModelInputs, Tensor]:
        """The world model's inputs of the present step, and the carry after it."""
        assert inputs.carry is not None, "an explorer carries a memory: begin with start_carry"
        model, rows, seen = self.model, len(inputs.state), "head" in self.spec.cameras
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
            head=model.features(inputs.images["head"]) if seen else torch.zeros_like(present),
            head_seen=torch.full((rows,), seen, device=self.device),
        )
        later = torch.cat([ring[:, 1:], present[:, None]], dim=1).flatten(1)
        carry = torch.cat([after.transpose(0, 1).flatten(1), later, torch.ones_like(begun)], dim=1)
        return model.with_foresight(model.with_vision(observed)), carry[None]

    @property
    def _memory_size(self) -> int:
        return self.model.memory.layers * self.model.memory.hidden

    @property
    def _frames_size(self) -> int:
        spec = self.model.spec.vq
        return self.spec.history * spec.grid**2 * spec.latent


def repeat_rows(inputs: WorldModelInputs, times: int) -> WorldModelInputs:
    """Every row so many times in a row, as `score_chain` wants it."""
    parts: dict[str, Any] = {f.name: getattr(inputs, f.name) for f in fields(inputs)}
    repeated = {name: x.repeat_interleave(times, 0) for name, x in parts.items() if x is not None}
    return WorldModelInputs(**repeated)
