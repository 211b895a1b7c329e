"""Reward models learned from preferences: ensembles that read a state or an image.

All members are one network, so that an ensemble costs little more than a member. Each may be given rows of its own.
Rewards have no bounds: with them, preferences between single steps push all good states to the upper one, where the
good can no longer be told from the best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from lookact.errors import ConfigError
from lookact.models.sac import EnsembleMLP, Standardise

LAYERS = ((16, 5, 3), (32, 3, 2), (64, 3, 2), (128, 3, 2))
"""Channels, kernel and stride of each convolution (RL-VLM-F, arXiv:2402.03681)."""
SMALLEST = 47
"""Pixels of a side that leave one cell after the last convolution."""


class StateRewards(nn.Module):
    """Rewards (members, b) of states (b, s), or (members, b, s)."""

    axes = 1
    """Of one input."""

    def __init__(
        self, state_size: int, *, members: int = 3, hidden: Sequence[int] = (256, 256), generator: torch.Generator
    ) -> None:
        super().__init__()
        self.members = members
        self.network = EnsembleMLP(members, (state_size, *hidden, 1), generator)
        self.standardise = Standardise(state_size)

    @property
    def device(self) -> torch.device:
        return self.standardise.unit.device

    def fit_normaliser(self, states: Tensor) -> None:
        """Fit the observation normaliser to states (n, s)."""
        self.standardise.fit(states)

    def forward(self, states: Tensor) -> Tensor:
        outputs: Tensor = self.network(self.standardise(states))
        return outputs[..., 0]


class ImageRewards(nn.Module):
    """Rewards (members, b) of uint8 images (b, h, w, 3), or (members, b, h, w, 3)."""

    axes = 3

    def __init__(self, size: tuple[int, int], *, members: int = 3, generator: torch.Generator) -> None:
        super().__init__()
        if min(size) < SMALLEST:
            raise ConfigError(
                f"images of {size[0]}x{size[1]} are too small: the reward network needs {SMALLEST} pixels"
            )
        self.members = members
        channels, (height, width) = 3, size
        layers: list[nn.Module] = []
        for outputs, kernel, stride in LAYERS:
            layers.append(_grouped(members, channels, outputs, kernel, stride, generator))
            channels = outputs
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        self.layers = nn.ModuleList(layers)
        self.head = EnsembleMLP(members, (channels * height * width, 1), generator)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def fit_normaliser(self, images: Tensor) -> None:
        """Images need none: a pixel's bounds are known."""

    def forward(self, images: Tensor) -> Tensor:
        own = images if images.dim() == 5 else images.expand(self.members, *images.shape)
        # members side by side as groups of channels
        hidden = own.permute(1, 0, 4, 2, 3).flatten(1, 2).float() / 255.0 - 0.5
        for layer in self.layers:
            hidden = functional.leaky_relu(layer(hidden), inplace=True)
        flat = hidden.reshape(len(hidden), self.members, -1).transpose(0, 1)
        outputs: Tensor = self.head(flat)
        return outputs[..., 0]


RewardModel = StateRewards | ImageRewards


def make_reward_model(
    shape: tuple[int, ...], *, members: int, hidden: Sequence[int], generator: torch.Generator
) -> RewardModel:
    """An ensemble that reads states of shape (s,), or images of shape (h, w, 3)."""
    if len(shape) == 1:
        return StateRewards(shape[0], members=members, hidden=hidden, generator=generator)
    return ImageRewards((shape[0], shape[1]), members=members, generator=generator)


def segment_rewards(model: RewardModel, segments: Tensor) -> Tensor:
    """Summed rewards (members, n) of segments (n, t, ...), or (members, n, t, ...) with inputs per member."""
    length = segments.shape[-model.axes - 1]
    own = segments.dim() == model.axes + 3
    segments = segments.to(model.device)
    rewards: Tensor = model(segments.flatten(1, 2) if own else segments.flatten(0, 1))
    return rewards.reshape(model.members, -1, length).sum(dim=-1)


@torch.no_grad()
def preference_probabilities(model: RewardModel, first: Tensor, second: Tensor, *, chunk: int = 256) -> Tensor:
    """Each member's P(second is better) (members, n) of segments (n, t, ...)."""
    gaps = [
        segment_rewards(model, two) - segment_rewards(model, one)
        for one, two in zip(torch.split(first, chunk), torch.split(second, chunk))
    ]
    return torch.cat(gaps, dim=1).sigmoid().cpu()


def _grouped(
    members: int, inputs: int, outputs: int, kernel: int, stride: int, generator: torch.Generator
) -> nn.Conv2d:
    layer = nn.Conv2d(members * inputs, members * outputs, kernel, stride, groups=members)
    bound = 1.0 / math.sqrt(inputs * kernel * kernel)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return layer
