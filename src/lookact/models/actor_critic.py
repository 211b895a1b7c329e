"""Outputs of control policies, a Gaussian over actions and a value: drawn, scored, frozen; and the value head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from lookact.batch import ActorCriticOutput, ActorOutput, ControlInputs, Scores
from lookact.errors import ConfigError
from lookact.ops.logprobs import gaussian_entropy, gaussian_logprob


def draw(
    output: ActorCriticOutput, *, generator: torch.Generator | None, greedy: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Actions (b, a), their log-probs (b,) and the values (b,) of an output."""
    mean, log_std = output.mean[:, 0], output.log_std
    noise = torch.randn(mean.shape, generator=generator, device=mean.device)
    actions = mean if greedy else mean + log_std.exp() * noise
    return actions, gaussian_logprob(actions, mean, log_std), output.values


def sample_gaussian(policy: Any, inputs: ControlInputs, noise: Tensor) -> tuple[Tensor, ActorOutput]:
    """Actions (b, a) of a Gaussian policy from standard normal noise (b, a), and its output."""
    output: ActorOutput = policy.actor(inputs)
    return output.mean[:, 0] + output.log_std.exp() * noise, output


def score(output: ActorCriticOutput, actions: Tensor) -> Scores:
    """Log-probs, entropy and values (b, 1) of actions (b, a) under an output."""
    logprobs = gaussian_logprob(actions, output.mean[:, 0], output.log_std)
    entropy = gaussian_entropy(output.log_std).expand_as(logprobs)
    return Scores(logprobs.unsqueeze(1), entropy.unsqueeze(1), output.values.unsqueeze(1))


class ValueHead(nn.Module):
    """Critic head of token and control policies: hidden states (..., d) -> values (...), zero until trained."""

    def __init__(self, width: int, hidden: int = 0) -> None:
        """`width` is d; `hidden` > 0 puts a SiLU layer of that width in between."""
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, hidden), nn.SiLU()) if hidden else nn.Identity()
        self.output = nn.Linear(hidden or width, 1)
        # a fresh critic must not push the policy anywhere
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, states: Tensor) -> Tensor:
        # in the head's own precision: a critic in bfloat16 rounds away what it learns
        values: Tensor = self.output(self.inner(states.to(self.output.weight.dtype)))
        return values.squeeze(-1)


class FrozenPolicy:
    """The reference policy of a KL term: weights and statistics as they were; what never learns is shared."""

    def __init__(self, policy: nn.Module) -> None:
        self.policy = policy
        learned = {name: parameter for name, parameter in policy.named_parameters() if parameter.requires_grad}
        self.kept = {name: x.detach().clone() for name, x in (*learned.items(), *policy.named_buffers())}

    @torch.no_grad()
    def __call__(self, inputs: ControlInputs) -> ActorCriticOutput:
        """What it would have done."""
        output: ActorCriticOutput = functional_call(self.policy, self.kept, (inputs,))
        return output

    def state_dict(self) -> dict[str, Any]:
        return self.kept

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        if set(state) != set(self.kept):
            odd = min(set(state) ^ set(self.kept))
            raise ConfigError(f"the reference differs in {odd}: the run held other weights fixed before")
        self.kept = {name: state[name].to(held.device, held.dtype) for name, held in self.kept.items()}
