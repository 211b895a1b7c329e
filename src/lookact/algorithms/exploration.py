"""What an explorer is compared with, and measured by: scripted actions, and what actions reach in an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.data.sequences import TokenSequences
from lookact.envs.testbeds.noisy_tv import noise_in_view
from lookact.rewards.intrinsic import IntrinsicRewards
from lookact.training.distributed import mean_over_processes

Actions = NDArray[np.float32]
Shape = tuple[int, int, int]
CELL = 0.05
"""Side of a coverage cell, in metres."""
JOINT_BIN = 0.1
OU_RATE, OU_SCALE = 0.15, 0.3
"""Ornstein-Uhlenbeck noise as DDPG has it (arXiv:1509.02971): pull to zero a step, and deviation of its noise."""


def uniform_actions(rng: np.random.Generator, shape: Shape) -> Actions:
    """(rows, t, a) uniform in [-1, 1], new in every step."""
    return rng.uniform(-1, 1, shape).astype(np.float32)


def held_actions(rng: np.random.Generator, shape: Shape, *, steps: int) -> Actions:
    """Uniform actions, each held for so many steps."""
    rows, length, size = shape
    drawn = uniform_actions(rng, (rows, -(-length // steps), size))
    return drawn.repeat(steps, axis=1)[:, :length]


def bang_bang_actions(rng: np.random.Generator, shape: Shape, *, steps: int) -> Actions:
    """Every joint at -1 or 1, held for so many steps."""
    return np.where(held_actions(rng, shape, steps=steps) < 0, -1, 1).astype(np.float32)


def ou_actions(rng: np.random.Generator, shape: Shape) -> Actions:
    """Ornstein-Uhlenbeck noise, clipped to [-1, 1]."""
    noise = rng.normal(scale=OU_SCALE, size=shape)
    walk = np.zeros(shape)
    for t in range(shape[1]):
        before = walk[:, t - 1] if t else 0.0
        walk[:, t] = (1 - OU_RATE) * before + noise[:, t]
    return np.clip(walk, -1, 1).astype(np.float32)


def matched_actions(rng: np.random.Generator, actions: Actions) -> Actions:
    """All actions (rows, t, a) in random order and with random signs: only their magnitudes are kept."""
    shuffled = rng.permutation(actions.reshape(-1, actions.shape[2])).reshape(actions.shape)
    result: Actions = shuffled * rng.choice(np.array([-1.0, 1.0], np.float32), actions.shape)
    return result


def correlated_noise(shape: Sequence[int], correlation: float, generator: torch.Generator) -> Tensor:
    """Standard normal noise (t, ...) that from one step to the next is correlated by so much; 0 is white.

    Each step's noise is as a Gaussian policy has it, so that its log-probabilities stay right; correlated in time it
    holds a direction for some steps (PPO with coloured noise, arXiv:2312.11091).
    """
    white = torch.randn(tuple(shape), generator=generator)
    steps = [white[0]]
    for fresh in white[1:]:
        steps.append(correlation * steps[-1] + (1 - correlation**2) ** 0.5 * fresh)
    return torch.stack(steps)


SCRIPTS: Mapping[str, Callable[[np.random.Generator, Shape], Actions]] = {
    "random": uniform_actions,
    "held_4": partial(held_actions, steps=4),
    "held_12": partial(held_actions, steps=12),
    "held_48": partial(held_actions, steps=48),
    "ou": ou_actions,
    "bang_bang_8": partial(bang_bang_actions, steps=8),
    "bang_bang_16": partial(bang_bang_actions, steps=16),
}
"""Exploration without learning, by name."""


def coverage(positions: NDArray[np.float32]) -> float:
    """How many cells of `CELL` metres positions (..., 3) are in; of another's environment, whole states (..., s)."""
    cells = np.floor(positions.reshape(-1, positions.shape[-1]) / CELL).astype(np.int64)
    return float(len(np.unique(cells, axis=0)))


def coverage_by_row(positions: NDArray[np.float32]) -> NDArray[np.float64]:
    """Coverage (b,) of each episode's positions (b, t, …)."""
    return np.array([coverage(one) for one in positions])


def joint_coverage(joints: NDArray[np.float32]) -> float:
    """How many bins of `JOINT_BIN` radians joint angles (..., j) are in, summed over joints: no reward pays for it."""
    bins = np.floor(joints.reshape(-1, joints.shape[-1]) / JOINT_BIN).astype(np.int64)
    return float(sum(len(np.unique(column)) for column in bins.T))


def interaction(infos: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, NDArray[np.float64]]:
    """Of the infos of t steps of b rows: the rate of steps with contact, and the metres objects were moved, (b,)."""
    touched = np.array([[float(info.get("contact", 0.0)) for info in step] for step in infos])
    moved = np.array([[float(info.get("displacement", 0.0)) for info in step] for step in infos])
    return {"contact_rate": touched.mean(axis=0), "displacement": moved.max(axis=0)}


def reward_metrics(terms: IntrinsicRewards, total: Tensor, mask: Tensor, log_std: Tensor) -> dict[str, float]:
    """Means over processes of weighted reward terms (b, t) where mask is True, and of the policy's deviation."""
    named = {"memory": terms.divergence, "uncertainty": terms.uncertainty, "novelty": terms.novelty, "total": total}
    means = {f"reward/{name}": values[mask].mean() for name, values in named.items()}
    return mean_over_processes(means | {"policy/std": log_std.detach().exp().mean()})


def noise_share(rewards: Tensor, sequences: TokenSequences) -> dict[str, float]:
    """How often noise was in view after a step, and its share of the rewards (b, t)."""
    noisy = torch.from_numpy(noise_in_view(sequences.state.numpy()))[:, 1:].to(rewards.device)
    share = rewards[noisy].sum() / rewards.sum().clamp(min=1e-6)
    return mean_over_processes({"rollout/noise_rate": noisy.float().mean(), "reward/noise_share": share})
