"""What a control policy makes of what it is shown: a Gaussian over actions, and a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lookact.batch import Scores
from lookact.ops.gaussian import gaussian_entropy, gaussian_logprob


@dataclass(frozen=True)
class ActorOutput:
    """What a policy would do in a batch of steps, before anyone asks what that is worth."""

    mean: Tensor
    """(b, chunk, a)"""
    log_std: Tensor
    """(a,)"""
    critic_features: Tensor
    """(b, ...) what the critic judges by."""
    carry: Tensor | None
    """(1, b, hidden) memory after the step."""

    def worth(self, values: Tensor) -> ActorCriticOutput:
        """The same with the critic's values (b,)."""
        return ActorCriticOutput(self.mean, self.log_std, values, self.carry)


@dataclass(frozen=True)
class ActorCriticOutput:
    """What a policy makes of a batch of steps."""

    mean: Tensor
    """(b, chunk, a)"""
    log_std: Tensor
    """(a,)"""
    values: Tensor
    """(b,)"""
    carry: Tensor | None
    """(1, b, hidden) memory after the step."""


def draw(
    outlook: ActorCriticOutput, *, generator: torch.Generator | None, greedy: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Actions (b, a), their log-probs (b,) and the values (b,) of an outlook."""
    mean, log_std = outlook.mean[:, 0], outlook.log_std
    noise = torch.randn(mean.shape, generator=generator, device=mean.device)
    actions = mean if greedy else mean + log_std.exp() * noise
    return actions, gaussian_logprob(actions, mean, log_std), outlook.values


def score(outlook: ActorCriticOutput, actions: Tensor) -> Scores:
    """Log-probs, entropy and values (b, 1) of actions (b, a) under an outlook."""
    logprobs = gaussian_logprob(actions, outlook.mean[:, 0], outlook.log_std)
    entropy = gaussian_entropy(outlook.log_std).expand_as(logprobs)
    return Scores(logprobs.unsqueeze(1), entropy.unsqueeze(1), outlook.values.unsqueeze(1))
