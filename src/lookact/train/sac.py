"""One gradient step of soft actor-critic (arXiv:1812.05905): critics, actor and temperature, then the targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lookact.data.replay import Transitions
from lookact.models.sac import SAC
from lookact.ops.sac_loss import actor_loss, critic_loss, critic_target, temperature_loss


@dataclass(frozen=True)
class SACSpec:
    """How SAC learns."""

    lr: float = 3e-4
    gamma: float = 0.99
    tau: float = 0.005
    """Share of the critics that the targets take over at a time."""
    target_every: int = 1
    """Gradient steps between two updates of the targets."""
    target_entropy: float | None = None
    """None: one nat below zero for each dimension of the action."""


class SACLearner:
    """The optimisers of a SAC and the step they make; a Stateful, the weights aside."""

    def __init__(self, sac: SAC, spec: SACSpec) -> None:
        self.sac, self.spec = sac, spec
        self.steps = 0
        self.target_entropy = -float(sac.action_size) if spec.target_entropy is None else spec.target_entropy
        self._actor = torch.optim.Adam([*sac.actor.parameters(), sac.log_alpha], lr=spec.lr, fused=True)
        self._critic = torch.optim.Adam(sac.critics.parameters(), lr=spec.lr, fused=True)

    def update(self, batch: Transitions, generator: torch.Generator) -> dict[str, Tensor]:
        """One step on a batch; metrics are tensors, so that only who reads them waits for them."""
        batch = standardised(self.sac, batch)
        noise = torch.randn(2, len(batch.rewards), self.sac.action_size, generator=generator)
        alpha = self.sac.log_alpha.detach().exp()
        metrics = self._learn_critics(batch, noise[0], alpha) | self._learn_actor(batch.states, noise[1], alpha)
        self.steps += 1
        if self.steps % self.spec.target_every == 0:
            with torch.no_grad():
                self.sac.targets.flat.lerp_(self.sac.critics.flat, self.spec.tau)
        return metrics

    def reset_critics(self, generator: torch.Generator) -> None:
        """Forget what the critics and their optimiser know, for a reward that has become another."""
        self.sac.reset_critics(generator)
        self._critic = torch.optim.Adam(self.sac.critics.parameters(), lr=self.spec.lr, fused=True)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "actor": self._actor.state_dict(), "critic": self._critic.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = state["steps"]
        self._actor.load_state_dict(state["actor"])
        self._critic.load_state_dict(state["critic"])

    def _learn_critics(self, batch: Transitions, noise: Tensor, alpha: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            actions, logprobs = self.sac.actor.sample(batch.next_states, noise)
            next_q = self.sac.targets(torch.cat([batch.next_states, actions], dim=1)).amin(dim=0)[:, 0]
        target = critic_target(batch.rewards, batch.terminated, next_q, logprobs, gamma=self.spec.gamma, alpha=alpha)
        loss, metrics = critic_loss(self.sac.critics(batch.inputs)[..., 0], target)
        take_step(self._critic, loss)
        return {"loss/critic": loss.detach(), "policy/q": metrics["q"], "policy/td_error": metrics["td_error"]}

    def _learn_actor(self, states: Tensor, noise: Tensor, alpha: Tensor) -> dict[str, Tensor]:
        actions, logprobs = self.sac.actor.sample(states, noise)
        # the critics are read here, not taught: their gradients would be half of the work
        q = self.sac.critics.frozen(torch.cat([states, actions], dim=1)).amin(dim=0)[:, 0]
        loss, metrics = actor_loss(logprobs, q, alpha=alpha)
        warmth, heat = temperature_loss(self.sac.log_alpha, logprobs, target_entropy=self.target_entropy)
        # neither loss has a gradient for what the other trains
        take_step(self._actor, loss + warmth)
        return {"loss/actor": loss.detach(), "policy/entropy": metrics["entropy"], "policy/alpha": heat["alpha"]}


def standardised(sac: SAC, batch: Transitions) -> Transitions:
    """The batch with its states as the networks read them."""
    states, next_states = sac.standardise(batch.states), sac.standardise(batch.next_states)
    inputs = torch.cat([states, batch.inputs[:, sac.state_size :]], dim=1)
    return replace(batch, inputs=inputs, states=states, next_states=next_states)


def take_step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()
