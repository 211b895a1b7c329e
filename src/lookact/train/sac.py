"""One gradient step of soft actor-critic (arXiv:1812.05905): critics, actor and temperature, then the targets.

Gradients are written out, not left to autograd; the losses are those of `ops.sac_loss`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lookact.data.replay import Transitions
from lookact.models.ensemble import run_ahead, run_back
from lookact.models.sac import SAC
from lookact.models.squashed_actor import Drawn
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

    @torch.no_grad()
    def update(self, batch: Transitions, generator: torch.Generator) -> dict[str, Tensor]:
        """One step on a batch; metrics are tensors, so that only who reads them waits for them."""
        rows, batch = len(batch.rewards), standardised(self.sac, batch)
        noise = torch.randn(2 * rows, self.sac.action_size, generator=generator)
        alpha = self.sac.log_alpha.exp()
        # of both states at once: the actor stays as it is while the critics learn
        drawn = self.sac.actor.draw(torch.cat([batch.next_states, batch.states]), noise)
        metrics = self._learn_critics(batch, drawn.rows(0, rows), alpha)
        metrics |= self._learn_actor(batch.states, drawn.rows(rows, 2 * rows), alpha)
        self.steps += 1
        if self.steps % self.spec.target_every == 0:
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

    def _learn_critics(self, batch: Transitions, drawn: Drawn, alpha: Tensor) -> dict[str, Tensor]:
        next_inputs = torch.cat([batch.next_states, drawn.actions], dim=1)
        next_q = run_ahead(next_inputs, self.sac.targets.layers)[0].amin(dim=0)[:, 0]
        target = critic_target(
            batch.rewards, batch.terminated, next_q, drawn.logprobs, gamma=self.spec.gamma, alpha=alpha
        )
        critics = self.sac.critics
        q, met = run_ahead(batch.inputs, critics.layers)
        loss, metrics = critic_loss(q[..., 0], target)
        # of that loss at each critic's answers
        upper = (q - target[:, None]) / len(target)
        run_back(upper, met, critics.layers, critics.gradients(), for_inputs=False)
        self._critic.step()
        return {"loss/critic": loss, "policy/q": metrics["q"], "policy/td_error": metrics["td_error"]}

    def _learn_actor(self, states: Tensor, drawn: Drawn, alpha: Tensor) -> dict[str, Tensor]:
        critics, network, rows = self.sac.critics, self.sac.actor.network, len(states)
        q, met = run_ahead(torch.cat([states, drawn.actions], dim=1), critics.layers)
        loss, metrics = actor_loss(drawn.logprobs, q.amin(dim=0)[:, 0], alpha=alpha)
        warmth, heat = temperature_loss(self.sac.log_alpha, drawn.logprobs, target_entropy=self.target_entropy)
        # the smaller of the two answers counts; the critics are read here, not taught
        first = (q[0] <= q[1]).float()
        for_inputs = run_back(torch.stack([first, 1.0 - first]) / -rows, met, critics.layers, None, for_inputs=True)
        assert for_inputs is not None
        upper = drawn.gradient(for_inputs.sum(dim=0)[:, self.sac.state_size :], alpha / rows)
        run_back(upper, drawn.met, network.layers, network.gradients(), for_inputs=False)
        # α is its own derivative by log α
        self.sac.log_alpha.grad = warmth
        self._actor.step()
        return {"loss/actor": loss, "policy/entropy": metrics["entropy"], "policy/alpha": heat["alpha"]}


def standardised(sac: SAC, batch: Transitions) -> Transitions:
    """The batch with its states as the networks read them."""
    states, next_states = sac.standardise(batch.states), sac.standardise(batch.next_states)
    inputs = torch.cat([states, batch.inputs[:, sac.state_size :]], dim=1)
    return replace(batch, inputs=inputs, states=states, next_states=next_states)
