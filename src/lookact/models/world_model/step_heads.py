"""What a world model's next frame does not tell of a step: reward, end, the next state, and the head camera's frame."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.models.vla.encoders import initialise
from lookact.models.world_model.model import WorldModel, WorldModelInputs
from lookact.ops.masked import masked_mean
from lookact.seeding import torch_rng

HIDDEN = 128


@dataclass(frozen=True)
class StepPrediction:
    """Of n steps."""

    reward: Tensor
    """(n,)"""
    end: Tensor
    """(n,) logit of the episode's end by success or failure."""
    state: Tensor
    """(n, state_dim) change of the state, in the world model's units."""
    head: Tensor
    """(n, cells, d) change of the head camera's features, in the world model's units."""


class StepHeads(nn.Module):
    """An MLP on a frozen world model's hidden state of a step, its memory, state, action and head camera."""

    def __init__(self, world_model: WorldModel, *, seed: int = 0) -> None:
        super().__init__()
        spec = world_model.spec
        self.cells, self.latent, self.state_dim = spec.vq.grid**2, spec.vq.latent, spec.state_dim
        inputs = spec.width + max(1, spec.memory) + spec.state_dim + spec.action_dim + self.cells * self.latent
        self.trunk = nn.Sequential(nn.Linear(inputs, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU())
        self.output = nn.Linear(HIDDEN, 2 + spec.state_dim + self.cells * self.latent)
        initialise(self, torch_rng(seed, "step heads"))
        with torch.no_grad():
            # at first nothing changes, nothing is earned, and ends are rare
            self.output.weight.zero_()
            self.output.bias.zero_()
            self.output.bias[1] = -3.0

    def forward(self, features: Tensor) -> StepPrediction:
        """Of features (n, f), as `step_features` has them."""
        output = self.output(self.trunk(features))
        reward, end, state, head = output.split([1, 1, self.state_dim, self.cells * self.latent], dim=1)
        return StepPrediction(reward[:, 0], end[:, 0], state, head.view(-1, self.cells, self.latent))

    def loss(self, features: Tensor, truth: StepPrediction, follows: Tensor) -> Tensor:
        """Squared errors, and cross-entropy of the end (0 or 1 in `truth`); `follows` (n,): the next is known."""
        found = self(features)
        reward = (found.reward - truth.reward).square().mean()
        end = functional.binary_cross_entropy_with_logits(found.end, truth.end)
        state = masked_mean((found.state - truth.state).square().mean(dim=1), follows)
        head = masked_mean((found.head - truth.head).square().flatten(1).mean(dim=1), follows)
        # a step's reward is a few hundredths: in units of its own it would hardly count
        total: Tensor = 100.0 * reward + end + 10.0 * state + head
        return total


def step_features(world_model: WorldModel, inputs: WorldModelInputs, hidden: Tensor, action: Tensor) -> Tensor:
    """(n, f) of inputs, the action token's hidden state (n, width) and the action (n, action_dim)."""
    state = world_model.normalise_state(inputs.state)
    head = inputs.head.flatten(1) / world_model.feature_std
    return torch.cat([hidden, inputs.memory, state, action, head], dim=1)
