"""What a control policy is held close to: itself as it was."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from lookact.batch import ControlInputs
from lookact.errors import ConfigError
from lookact.models.actor_critic import ActorCriticOutput


class FrozenControl:
    """A policy with the weights and statistics it had when this was made; what never learns is shared with it."""

    def __init__(self, policy: nn.Module) -> None:
        self.policy = policy
        learned = {name: parameter for name, parameter in policy.named_parameters() if parameter.requires_grad}
        self.kept = {name: x.detach().clone() for name, x in (*learned.items(), *policy.named_buffers())}

    @torch.no_grad()
    def __call__(self, inputs: ControlInputs) -> ActorCriticOutput:
        """What it would have done."""
        outlook: ActorCriticOutput = functional_call(self.policy, self.kept, (inputs,))
        return outlook

    def state_dict(self) -> dict[str, Any]:
        return self.kept

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        if set(state) != set(self.kept):
            odd = min(set(state) ^ set(self.kept))
            raise ConfigError(f"the reference differs in {odd}: the run held other weights fixed before")
        self.kept = {name: state[name].to(held.device, held.dtype) for name, held in self.kept.items()}
