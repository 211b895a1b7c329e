"""One gradient step of soft actor-critic (arXiv:1812.05905): critics, actor and temperature, then the targets.

Gradients of the losses of `ops.sac_loss` are written out, not left to autograd. Products are torch's; all that is one
number a row is numpy's, whose calls cost less than the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lookact.data.replay import Transitions
from lookact.models.ensemble import EnsembleMLP, Layer, run_ahead, run_back
from lookact.models.sac import SAC
from lookact.models.squashed_actor import Drawn, Floats
from lookact.train.optim import quick_step


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
    def update(self, batch: Transitions, generator: torch.Generator) -> dict[str, float]:
        """One step on a batch."""
        rows, sac = len(batch.rewards), self.sac
        noise = torch.randn(2 * rows, sac.action_size, generator=generator)
        alpha = math.exp(sac.log_alpha.item())
        # of both states at once: the actor stays as it is while the critics learn
        both = sac.standardise(torch.cat([batch.next_states, batch.states]))
        drawn = sac.actor.draw(both, noise)
        read = torch.cat([both[rows:], batch.inputs[:, sac.state_size :]], dim=1)
        batch = replace(batch, inputs=read, states=both[rows:], next_states=both[:rows])
        metrics = self._learn_critics(batch, drawn.rows(0, rows), alpha)
        metrics |= self._learn_actor(batch.states, drawn.rows(rows, 2 * rows), alpha)
        self.steps += 1
        if self.steps % self.spec.target_every == 0:
            sac.targets.flat.lerp_(sac.critics.flat, self.spec.tau)
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

    def _learn_critics(self, batch: Transitions, drawn: Drawn, alpha: float) -> dict[str, float]:
        critics, gamma = self.sac.critics, self.spec.gamma
        after = self._answers(batch.next_states, drawn, self.sac.targets)[0]
        worth = np.minimum(after[0], after[1]) - alpha * drawn.logprobs
        # a truncated step bootstraps like any other
        target = batch.rewards.numpy() + gamma * np.where(batch.terminated.numpy(), 0.0, worth).astype(np.float32)
        answers, met = run_ahead(batch.inputs, critics.layers)
        q = answers[..., 0].numpy()
        errors = q - target
        # of half the mean squared error of each critic
        upper = torch.from_numpy(errors / np.float32(len(target))).unsqueeze(-1)
        run_back(upper, met, critics.layers, critics.gradients(), for_inputs=False)
        quick_step(self._critic)
        loss = 0.5 * float(np.vdot(errors, errors)) / len(target)
        return {"loss/critic": loss, "policy/q": float(q.mean()), "policy/td_error": float(np.abs(errors).mean())}

    def _learn_actor(self, states: Tensor, drawn: Drawn, alpha: float) -> dict[str, float]:
        network, log_alpha, rows = self.sac.actor.network, self.sac.log_alpha, len(states)
        q, met = self._answers(states, drawn, self.sac.critics)
        for_actions = uphill(q, met, self.sac.critics.layers, self.sac.state_size) / np.float32(-rows)
        upper = drawn.gradient(for_actions, alpha / rows)
        run_back(upper, drawn.met, network.layers, network.gradients(), for_inputs=False)
        logprob = float(drawn.logprobs.mean())
        # α is its own derivative by log α
        log_alpha.grad = log_alpha.new_tensor(-alpha * (logprob + self.target_entropy))
        quick_step(self._actor)
        loss = alpha * logprob - float(np.minimum(q[0], q[1]).mean())
        return {"loss/actor": loss, "policy/entropy": -logprob, "policy/alpha": alpha}

    def _answers(self, states: Tensor, drawn: Drawn, critics: EnsembleMLP) -> tuple[Floats, list[Tensor]]:
        """What each critic (2, b) says of states (b, s) and the actions drawn there, and what its layers met."""
        answers, met = run_ahead(torch.cat([states, torch.from_numpy(drawn.actions)], dim=1), critics.layers)
        return answers[..., 0].numpy(), met


def uphill(q: Floats, met: list[Tensor], layers: list[Layer], state_size: int) -> Floats:
    """Gradient (b, a) at the actions of the smaller answer of two critics q (2, b), whose layers met `met`."""
    smaller = (q[0] <= q[1]).astype(np.float32)
    upper = torch.from_numpy(np.stack([smaller, 1.0 - smaller])[..., None])
    (weight, bias), *rest = layers
    # of the inputs only the actions were drawn
    told = run_back(upper, met, [(weight[:, state_size:], bias), *rest], None, for_inputs=True)
    assert told is not None
    found: Floats = told[0].numpy() + told[1].numpy()
    return found
