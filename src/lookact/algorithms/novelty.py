"""Curiosity by random network distillation (arXiv:1810.12894): what has not been seen cannot be predicted yet.

A predictor learns the output of a fixed random network on states; its error is the novelty of a state, and an added
reward. It pays for reaching what is new where a sparse reward tells nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lookact.models.vla.encoders import initialise
from lookact.ops.masked import RunningMoments, masked_mean, sums
from lookact.rollout.vector_rollout import Rollout
from lookact.seeding import torch_rng
from lookact.training.distributed import all_reduce_sum, mean_over_processes, sum_gradients, world_size

FEATURES = 32
STEPS = 8
"""Gradient steps a rollout: novelty that fades too slowly would be paid for ever."""
WIDEST = 5.0
"""Standardised states beyond it count as there: what is far out would drown the rest."""


class Novelty:
    """The novelty of states (n, s), in units of its deviation over all states so far; learns from what it is shown."""

    def __init__(
        self, size: int, *, seed: int, weight: float = 1.0, lr: float = 1e-3, device: torch.device | str = "cpu"
    ) -> None:
        self.weight = weight
        generator = torch_rng(seed, "novelty")
        self.target, self.predictor = _perceptron(size, generator), _perceptron(size, generator)
        self.target.requires_grad_(False).to(device)
        self.predictor.to(device)
        self.optimizer = torch.optim.Adam(self.predictor.parameters(), lr=lr)
        self.states, self.errors = RunningMoments(size), RunningMoments(1)

    def error(self, states: Tensor) -> Tensor:
        """(n,) squared error of the predictor on states (n, s)."""
        mean, deviation = self.states.mean.to(states), self.states.deviation.to(states)
        seen = ((states - mean) / deviation).clamp(-WIDEST, WIDEST)
        error: Tensor = (self.predictor(seen) - self.target(seen)).square().mean(dim=-1)
        return error

    def reward(self, rollout: Rollout) -> Tensor:
        """(t, rows) the novelty of the state that each step led to; 0 where an episode or the rollout ended.

        All states of the rollout are counted in first, and learned from afterwards.
        """
        known = rollout.inputs.true_state
        states = rollout.inputs.state if known is None else known
        counted = states[rollout.mask]
        self._count(self.states, counted)
        with torch.no_grad():
            errors = self.error(states)
        self._count(self.errors, errors[rollout.mask].unsqueeze(1))
        self._learn(counted)
        found = torch.zeros_like(rollout.rewards)
        goes_on = ~(rollout.terminated | rollout.truncated)[:-1] & rollout.mask[:-1] & rollout.mask[1:]
        found[:-1] = errors[1:] * goes_on / float(self.errors.deviation)
        return found

    def added_to(self, rollout: Rollout) -> tuple[Rollout, dict[str, float]]:
        """The rollout with its novelty, times the weight, in its rewards, and the metrics of it."""
        novelty = self.reward(rollout)
        metrics = mean_over_processes({"reward/novelty": masked_mean(novelty, rollout.mask)})
        return replace(rollout, rewards=rollout.rewards + self.weight * novelty), metrics

    def state_dict(self) -> dict[str, Any]:
        names = ("predictor", "optimizer", "states", "errors")
        return {name: getattr(self, name).state_dict() for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in state.items():
            getattr(self, name).load_state_dict(part)

    def _learn(self, states: Tensor) -> None:
        """A few gradient steps on what the rollout has shown, in all processes together."""
        for _ in range(STEPS):
            self.optimizer.zero_grad()
            (self.error(states).mean() / world_size()).backward()  # type: ignore[no-untyped-call]
            sum_gradients(list(self.predictor.parameters()))
            self.optimizer.step()

    @staticmethod
    def _count(moments: RunningMoments, vectors: Tensor) -> None:
        count, total, squares = sums(vectors.cpu())
        moments.merge(all_reduce_sum(count), all_reduce_sum(total), all_reduce_sum(squares))


def open_novelty(policy: Any, weight: float, *, seed: int) -> Novelty | None:
    """Of the true states that a policy's critic is given, or else of its own; None without a weight."""
    size = policy.spec.true_state or policy.spec.state_size
    return Novelty(size, seed=seed, weight=weight, device=policy.device) if weight else None


def _perceptron(size: int, generator: torch.Generator) -> nn.Sequential:
    network = nn.Sequential(nn.Linear(size, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, FEATURES))
    initialise(network, generator)
    return network
