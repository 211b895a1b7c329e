"""Soft actor-critic (arXiv:1812.05905) on batches of transitions: losses to minimise.

α, the temperature, is a constant in all of them but its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional

from lookact.ops.logprobs import LOG_TWO_PI
from lookact.ops.masked import Metrics


def squashed_logprob(raw: Tensor, noise: Tensor, log_std: Tensor) -> Tensor:
    """Log-density (...) of tanh(raw) for raw = mean + exp(log_std) * noise, each (..., a) (arXiv:1812.05905, app. C).

    log(1 − tanh²x) is written as 2·(log 2 − x − softplus(−2x)), which stays exact where tanh rounds to 1.
    """
    constant = log_std.shape[-1] * (0.5 * LOG_TWO_PI + 2.0 * math.log(2.0))
    density = noise.square() * -0.5 - log_std + (raw + functional.softplus(raw * -2.0)) * 2.0
    return density.sum(dim=-1) - constant


@torch.no_grad()
def critic_target(
    rewards: Tensor,
    terminated: Tensor,
    next_q: Tensor,
    next_logprobs: Tensor,
    *,
    gamma: float,
    alpha: float | Tensor,
) -> Tensor:
    """r + γ·(Q' − α·log π') (b,), or r alone where terminated (b,) bool; a truncated step bootstraps like any other.

    next_q (b,): the smallest of the target critics at the next observation and an action the policy draws there.
    """
    return rewards + gamma * (next_q - alpha * next_logprobs).masked_fill(terminated, 0.0)


def critic_loss(q: Tensor, target: Tensor) -> tuple[Tensor, Metrics]:
    """Half the mean squared error of each critic q (critics, b) against target (b,), summed over critics."""
    errors = q - target.detach()
    with torch.no_grad():
        metrics = {"q": q.mean(), "td_error": errors.abs().mean()}
    return errors.square().sum() * (0.5 / q.shape[-1]), metrics


def actor_loss(logprobs: Tensor, q: Tensor, *, alpha: float | Tensor) -> tuple[Tensor, Metrics]:
    """Mean of α·log π − Q over actions (b,) the policy drew with a gradient; q (b,): the smallest of the critics."""
    weight = alpha.detach() if isinstance(alpha, Tensor) else alpha
    return (weight * logprobs - q).mean(), {"entropy": -logprobs.detach().mean()}


def temperature_loss(log_alpha: Tensor, logprobs: Tensor, *, target_entropy: float) -> tuple[Tensor, Metrics]:
    """−α·(log π + H_target), averaged: α falls while the policy's entropy is above its target and rises below it."""
    alpha = log_alpha.exp()
    return -(alpha * (logprobs + target_entropy).detach()).mean(), {"alpha": alpha.detach().mean()}


@torch.no_grad()
def polyak_update(targets: Iterable[Tensor], sources: Iterable[Tensor], *, tau: float) -> None:
    """target ← (1 − τ)·target + τ·source, in place."""
    for target, source in zip(targets, sources):
        target.lerp_(source, tau)
