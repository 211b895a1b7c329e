"""A control policy that is told the state: two small networks, one for the action and one for its worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lookact.batch import ControlInputs, Scores
from lookact.models.outlook import Intent, Outlook, draw, score
from lookact.models.tower import Tower
from lookact.seeding import torch_rng


@dataclass(frozen=True)
class MLPSpec:
    """What the policy is shown and gives, and the size of what lies between."""

    state_size: int
    action_size: int
    hidden: tuple[int, ...] = (64, 64)
    std: float = 1.0
    learned_std: bool = True
    history: int = 0
    """It looks at no past actions."""
    cameras: tuple[str, ...] = ()


class ControlMLP(nn.Module):
    """A Gaussian actor and a critic on state (b, s), each with its own layers of tanh (arXiv:1707.06347, sec. 6.1)."""

    frozen_vision = False
    state_mean: Tensor
    state_std: Tensor

    def __init__(self, spec: MLPSpec, *, seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        generator = torch_rng(seed, "control_mlp")
        # a fresh policy is near rest
        self.actor = Tower((spec.state_size, *spec.hidden, spec.action_size), generator, gain=0.01)
        self.critic = Tower((spec.state_size, *spec.hidden, 1), generator, gain=1.0)
        self.log_std = nn.Parameter(torch.full((spec.action_size,), math.log(spec.std)), spec.learned_std)
        self.register_buffer("state_mean", torch.zeros(spec.state_size))
        self.register_buffer("state_std", torch.ones(spec.state_size))

    @property
    def device(self) -> torch.device:
        return self.log_std.device

    def set_statistics(self, mean: Tensor, std: Tensor) -> None:
        """States are seen as multiples of `std` (s,) around `mean` (s,)."""
        self.state_mean.copy_(mean)
        self.state_std.copy_(std.clamp_min(1e-3))

    def set_progress(self, share: float) -> None:
        """How much of training is over: of no concern to a spread that is fixed or learned."""

    def features(self, images: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """It does not look."""
        return {}

    def read(self, texts: Sequence[str]) -> Tensor:
        """It does not read: (b, 0)."""
        return torch.zeros(len(texts), 0, dtype=torch.long, device=self.device)

    def start_carry(self, rows: int) -> None:
        """It has no memory."""

    def forward(self, inputs: ControlInputs) -> Outlook:
        """Means and values of one step a row."""
        intent = self.intend(inputs)
        return intent.worth(self.appraise(intent.grounds))

    def intend(self, inputs: ControlInputs) -> Intent:
        """Means of one step a row."""
        state = (inputs.state - self.state_mean) / self.state_std
        return Intent(self.actor(state).unsqueeze(1), self.log_std, state, None)

    def appraise(self, grounds: Tensor) -> Tensor:
        """Values (b,) of states as they are seen."""
        values: Tensor = self.critic(grounds)
        return values.squeeze(-1)

    @torch.no_grad()
    def act(
        self, inputs: ControlInputs, *, generator: torch.Generator | None, greedy: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Actions (b, a), their log-probs (b,) and values (b,)."""
        return draw(self(inputs), generator=generator, greedy=greedy)

    def evaluate(self, inputs: ControlInputs) -> Scores:
        """Log-probs, entropy and values (b, 1) of the actions taken."""
        return score(self(inputs), inputs.actions)
