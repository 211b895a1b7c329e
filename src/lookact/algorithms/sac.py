"""One gradient step of soft actor-critic (arXiv:1812.05905): critics, actor, temperature, then the target critics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lookact.data.replay import Transitions
from lookact.models.sac import SAC
from lookact.ops.masked import Metrics
from lookact.ops.sac_loss import actor_loss, critic_loss, critic_target, temperature_loss


@dataclass(frozen=True)
class SACSpec:
    """How SAC learns."""

    lr: float = 3e-4
    gamma: float = 0.99
    tau: float = 0.005
    """Polyak: share of the critics that the target critics take over at a time."""
    target_every: int = 1
    """Gradient steps between two updates of the target critics."""
    target_entropy: float | None = None
    """None: one nat below zero for each dimension of the action."""


class SACLearner:
    """The optimisers of a SAC and the step they make; a Stateful, the weights aside."""

    def __init__(self, sac: SAC, spec: SACSpec) -> None:
        self.sac, self.spec = sac, spec
        self.steps = 0
        self.target_entropy = -float(sac.action_size) if spec.target_entropy is None else spec.target_entropy
        self._taught_by_critics = [*sac.actor.parameters(), sac.log_alpha]
        self.actor_optimizer = torch.optim.Adam(self._taught_by_critics, lr=spec.lr, fused=True)
        self.critic_optimizer = self._fresh_critic_optimizer()

    def update(self, batch: Transitions, generator: torch.Generator) -> Metrics:
        """One step on a batch that lies on the networks' device; noise is drawn on the generator's, the CPU."""
        sac, spec = self.sac, self.spec
        states, next_states = sac.standardise(batch.states), sac.standardise(batch.next_states)
        noise, next_noise = torch.randn(2, *batch.actions.shape, generator=generator).to(sac.device)
        alpha = sac.log_alpha.detach().exp()

        # critics: towards the reward and the soft value of what follows
        with torch.no_grad():
            next_actions, next_logprobs = sac.actor.sample(next_states, next_noise)
            next_q = sac.target_critics(next_states, next_actions).amin(dim=0)
        target = critic_target(batch.rewards, batch.terminated, next_q, next_logprobs, gamma=spec.gamma, alpha=alpha)
        critic, metrics = critic_loss(sac.critics(states, batch.actions), target)
        self.critic_optimizer.zero_grad()
        critic.backward()  # type: ignore[no-untyped-call]
        self.critic_optimizer.step()

        # actor and temperature: uphill on critics that stay as they are
        actions, logprobs = sac.actor.sample(states, noise)
        actor, actor_metrics = actor_loss(logprobs, sac.critics(states, actions).min(dim=0).values, alpha=alpha)
        temperature, alpha_metrics = temperature_loss(sac.log_alpha, logprobs, target_entropy=self.target_entropy)
        self.actor_optimizer.zero_grad()
        (actor + temperature).backward(inputs=self._taught_by_critics)  # type: ignore[no-untyped-call]
        self.actor_optimizer.step()

        # target critics
        self.steps += 1
        if self.steps % spec.target_every == 0:
            polyak(sac.target_critics, sac.critics, tau=spec.tau)
        losses = {"loss/critic": critic.detach(), "loss/actor": actor.detach()}
        told = metrics | actor_metrics | alpha_metrics
        return losses | {f"policy/{name}": value for name, value in told.items()}

    def reset_critics(self, generator: torch.Generator) -> None:
        """Forget what the critics and their optimiser know, for a reward that has become another."""
        self.sac.reset_critics(generator)
        self.critic_optimizer = self._fresh_critic_optimizer()

    def state_dict(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "actor": self.actor_optimizer.state_dict(),
            "critic": self.critic_optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = state["steps"]
        self.actor_optimizer.load_state_dict(state["actor"])
        self.critic_optimizer.load_state_dict(state["critic"])

    def _fresh_critic_optimizer(self) -> torch.optim.Adam:
        return torch.optim.Adam(self.sac.critics.parameters(), lr=self.spec.lr, fused=True)


@torch.no_grad()
def polyak(targets: torch.nn.Module, sources: torch.nn.Module, *, tau: float) -> None:
    """Each target's parameter moves by the share `tau` towards its source's."""
    for target, source in zip(targets.parameters(), sources.parameters()):
        target.lerp_(source, tau)
