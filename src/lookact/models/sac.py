"""Networks of soft actor-critic (arXiv:1812.05905): actor, twin critics and targets, each a batched MLP ensemble."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lookact.ops.sac_loss import squashed_logprob

CONSTANT, FINEST, FURTHEST = 1e-4, 0.02, 20.0
"""Standard deviation below which a dimension is not scaled, the smallest scale of the others, the clip."""

LAYER_NORM_EPS = 1e-5
"""Added to the variance, as `nn.LayerNorm` does."""

LOG_STD = (-5.0, 2.0)
"""Bounds of the log standard deviation before squashing."""


class EnsembleMLP(nn.Module):
    """An ensemble of ReLU MLPs, a layer one `baddbmm`: (b, inputs), or (members, b, inputs), -> (members, b, outputs).

    A layer is W x + b with a column for each row of the batch, weights (members, outputs, inputs) as those of
    `nn.Linear`: in this order a product with few outputs, such as a value, stays cheap, also on the way back.
    """

    def __init__(
        self, members: int, sizes: Sequence[int], generator: torch.Generator, *, layer_norm: bool = False
    ) -> None:
        """`sizes` are those of the input, every hidden layer, and the output; weights start as those of `nn.Linear`.

        `layer_norm` (arXiv:1607.06450) normalises each hidden layer before its ReLU.
        """
        super().__init__()
        self.members, self.sizes = members, tuple(sizes)
        layers = list(itertools.pairwise(sizes))
        self.weights = nn.ParameterList(torch.empty(members, outputs, inputs) for inputs, outputs in layers)
        self.biases = nn.ParameterList(torch.empty(members, outputs, 1) for _, outputs in layers)
        normalised = sizes[1:-1] if layer_norm else ()
        self.gains = nn.ParameterList(torch.ones(members, width, 1) for width in normalised)
        self.shifts = nn.ParameterList(torch.zeros(members, width, 1) for width in normalised)
        with torch.no_grad():
            for weight, bias in zip(self.weights, self.biases):
                bound = 1.0 / math.sqrt(weight.shape[2])
                weight.uniform_(-bound, bound, generator=generator)
                bias.uniform_(-bound, bound, generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs.mT.expand(self.members, -1, -1)
        last = len(self.weights) - 1
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            hidden = torch.baddbmm(bias, weight, hidden)
            if depth < last:
                if len(self.gains):
                    hidden = normalise_columns(hidden, self.gains[depth], self.shifts[depth])
                hidden = hidden.relu_()
        return hidden.mT


def normalise_columns(hidden: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    """Layer normalisation of columns: hidden (members, width, b), gain and shift (members, width, 1)."""
    # var_mean over a middle dimension takes five times as long
    centred = hidden - hidden.mean(dim=1, keepdim=True)
    variance = centred.square().mean(dim=1, keepdim=True)
    return torch.addcmul(shift, centred * (variance + LAYER_NORM_EPS).rsqrt(), gain)


class Standardise(nn.Module):
    """Observation normaliser: states (..., s) minus mean, over standard deviation, clipped; identity before `fit`."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.centre, self.unit = nn.Buffer(torch.zeros(size)), nn.Buffer(torch.ones(size))
        self.furthest = nn.Buffer(torch.tensor(torch.inf))

    def fit(self, states: Tensor) -> None:
        """Take mean and standard deviation of each dimension from these states (n, s)."""
        states = states.to(self.unit.device)
        spread = states.std(dim=0, correction=0)
        self.centre.copy_(states.mean(dim=0))
        # a dimension that has hardly moved must not be blown up when it first does
        self.unit.copy_(torch.where(spread > CONSTANT, spread.clamp(min=FINEST), 1.0))
        self.furthest.fill_(FURTHEST)

    def forward(self, states: Tensor) -> Tensor:
        return ((states - self.centre) / self.unit).clamp(-self.furthest, self.furthest)


class SquashedActor(nn.Module):
    """Mean and log standard deviation (b, a) of states (b, s), and actions drawn from them."""

    def __init__(self, state_size: int, action_size: int, hidden: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.network = EnsembleMLP(1, (state_size, *hidden, 2 * action_size), generator)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.network(states).squeeze(0).chunk(2, dim=-1)
        return mean, log_std.clamp(*LOG_STD)

    def sample(self, states: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions (b, a) for standard normal noise (b, a), reparameterised, and their log-densities (b,)."""
        mean, log_std = self(states)
        raw = torch.addcmul(mean, log_std.exp(), noise)
        return raw.tanh(), squashed_logprob(raw, noise, log_std)

    @torch.no_grad()
    def act(self, states: Tensor, noise: Tensor | None = None) -> Tensor:
        """Actions (b, a) to take: sampled with `noise`, else the mean's."""
        mean, log_std = self(states)
        return (mean if noise is None else torch.addcmul(mean, log_std.exp(), noise)).tanh()


class TwinCritics(nn.Module):
    """Q values (2, b) of states (b, s) and actions (b, a)."""

    def __init__(
        self,
        state_size: int,
        action_size: int,
        hidden: Sequence[int],
        generator: torch.Generator,
        *,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        sizes = (state_size + action_size, *hidden, 1)
        self.network = EnsembleMLP(2, sizes, generator, layer_norm=layer_norm)

    def forward(self, states: Tensor, actions: Tensor) -> Tensor:
        q: Tensor = self.network(torch.cat([states, actions], dim=-1))
        return q.squeeze(-1)


class SAC(nn.Module):
    """Actor, twin critics, target critics and log temperature.

    Actor and critics read states as `standardise` gives them; only `act` takes raw ones.
    """

    def __init__(
        self,
        state_size: int,
        action_size: int,
        *,
        hidden: Sequence[int] = (256, 256),
        alpha: float = 0.1,
        layer_norm: bool = False,
        generator: torch.Generator,
    ) -> None:
        """`layer_norm`: in the critics, whose values then stay bounded between the states they saw (DroQ, BRO)."""
        super().__init__()
        self.state_size, self.action_size, self.hidden = state_size, action_size, tuple(hidden)
        self.layer_norm = layer_norm
        self.standardise = Standardise(state_size)
        self.actor = SquashedActor(state_size, action_size, hidden, generator)
        self.critics = self._new_critics(generator)
        self.target_critics = self._new_critics(generator).requires_grad_(False)
        self.target_critics.load_state_dict(self.critics.state_dict())
        self.log_alpha = nn.Parameter(torch.tensor(math.log(alpha)))

    @property
    def device(self) -> torch.device:
        return self.log_alpha.device

    def act(self, states: Tensor, noise: Tensor | None = None) -> Tensor:
        """Actions (b, a) to take at raw states (b, s): sampled with `noise`, else the mean's."""
        return self.actor.act(self.standardise(states), noise)

    def act_on(self, state: NDArray[np.float32], generator: torch.Generator | None = None) -> NDArray[np.float32]:
        """The action (a,) for one state (s,): sampled where there is a generator, else the mean's."""
        noise = None if generator is None else torch.randn(1, self.action_size, generator=generator).to(self.device)
        action: NDArray[np.float32] = self.act(torch.from_numpy(state)[None].to(self.device), noise)[0].cpu().numpy()
        return action

    def reset_critics(self, generator: torch.Generator) -> None:
        """Reinitialise critics and targets, as for a reward that has changed altogether."""
        fresh = self._new_critics(generator).state_dict()
        self.critics.load_state_dict(fresh)
        self.target_critics.load_state_dict(fresh)

    def _new_critics(self, generator: torch.Generator) -> TwinCritics:
        sizes = self.state_size, self.action_size, self.hidden
        return TwinCritics(*sizes, generator, layer_norm=self.layer_norm)


class SACLearner:
    """A SAC with its optimisers and its count of gradient steps; a Stateful, the weights aside."""

    def __init__(self, sac: SAC, *, lr: float) -> None:
        self.sac, self.lr, self.steps = sac, lr, 0
        self.actor_parameters = [*sac.actor.parameters(), sac.log_alpha]
        self.actor_optimizer = torch.optim.Adam(self.actor_parameters, lr=lr, fused=True)
        self.critic_optimizer = torch.optim.Adam(sac.critics.parameters(), lr=lr, fused=True)

    def reset_critics(self, generator: torch.Generator) -> None:
        """Reinitialise critics, target critics and the critics' optimiser."""
        self.sac.reset_critics(generator)
        self.critic_optimizer = torch.optim.Adam(self.sac.critics.parameters(), lr=self.lr, fused=True)

    def state_dict(self) -> dict[str, Any]:
        actor, critic = self.actor_optimizer.state_dict(), self.critic_optimizer.state_dict()
        return {"steps": self.steps, "actor": actor, "critic": critic}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = state["steps"]
        self.actor_optimizer.load_state_dict(state["actor"])
        self.critic_optimizer.load_state_dict(state["critic"])
