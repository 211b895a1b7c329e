"""Reference policies of a KL term: a frozen copy, an exponential moving average, or the policy's earlier adapters."""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import functional_call

from lookact.batch import Scores, TokenInputs
from lookact.errors import ConfigError
from lookact.models.vlm.policy import ChatVLM


class NoReference:
    """Holds the place of a reference in the checkpoints of a run without one."""

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        pass


class CopyReference:
    """A copy of a policy, frozen, or an exponential moving average by `update`."""

    def __init__(self, chat: ChatVLM) -> None:
        # the tokenizer and the image processor have no state: both sides may hold the same
        shared = {id(part): part for part in (chat.tokenizer, chat.image_processor)}
        self.chat = copy.deepcopy(chat, shared).requires_grad_(False).eval()
        self.chat.value_head = None

    @torch.no_grad()
    def evaluate(self, inputs: TokenInputs, **filters: Any) -> Scores:
        """The reference's scores of units that were already taken, under the policy's own filters."""
        return self.chat.evaluate(inputs, **filters)

    @torch.no_grad()
    def update(self, chat: ChatVLM, decay: float) -> None:
        """EMA step: `decay` of itself and the rest of `chat`."""
        if not 0.0 <= decay <= 1.0:
            raise ConfigError(f"decay {decay} is not between 0 and 1")
        for slow, fast in zip(self.chat.model.parameters(), chat.model.parameters()):
            if slow.is_floating_point():
                slow.lerp_(fast.detach().to(slow.device, slow.dtype), 1.0 - decay)

    def state_dict(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.chat.model.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.chat.model.load_state_dict(state)


class AdapterReference:
    """The policy with the adapters it had when this was made: the base model is shared, so it costs next to nothing."""

    def __init__(self, chat: ChatVLM) -> None:
        if chat.model is chat.causal:
            raise ConfigError("the model has no adapters to hold on to: load it with lora, or use CopyReference")
        self.chat = chat
        self.adapters = {
            name: parameter.detach().clone() for name, parameter in chat.named_parameters() if parameter.requires_grad
        }

    @torch.no_grad()
    def evaluate(self, inputs: TokenInputs, **filters: Any) -> Scores:
        """The reference's scores of units that were already taken, under the policy's own filters."""
        scores: Scores = functional_call(self.chat, self.adapters, (inputs,), filters)
        return scores

    def state_dict(self) -> dict[str, Tensor]:
        return self.adapters

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        if set(state) != set(self.adapters):
            odd = min(set(state) ^ set(self.adapters))
            raise ConfigError(f"the reference differs in {odd}: the run had other adapters before")
        self.adapters = {name: state[name].to(held.device, held.dtype) for name, held in self.adapters.items()}


Reference = CopyReference | AdapterReference


def open_reference(chat: ChatVLM, kind: Literal["none", "frozen", "ema"]) -> Reference | None:
    """The reference that a policy is held to, made from the policy as it is now; none if it is free."""
    if kind == "none":
        return None
    # an average needs weights of its own; a frozen one may be the policy with its adapters of now
    return make_reference(chat) if kind == "frozen" else CopyReference(chat)


def make_reference(chat: ChatVLM) -> CopyReference | AdapterReference:
    """The cheapest frozen reference of `chat` as it is now."""
    return CopyReference(chat) if chat.model is chat.causal else AdapterReference(chat)
