"""Diagonal Gaussians over action vectors, plain and squashed by tanh. Axes: (..., a); results: (...)."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional

LOG_TWO_PI = math.log(2.0 * math.pi)


def gaussian_logprob(actions: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Log-density (...) of actions (..., a); log_std (..., a) or (a,)."""
    scaled = (actions - mean) * (-log_std).exp()
    return (-0.5 * scaled.square() - log_std - 0.5 * LOG_TWO_PI).sum(dim=-1)


def gaussian_entropy(log_std: Tensor) -> Tensor:
    """Entropy (...) in nats of log_std (..., a)."""
    return (log_std + 0.5 * (1.0 + LOG_TWO_PI)).sum(dim=-1)


def squashed_logprob(raw: Tensor, noise: Tensor, log_std: Tensor) -> Tensor:
    """Log-density (...) of tanh(raw) for raw = mean + exp(log_std) * noise, each (..., a) (arXiv:1812.05905, app. C).

    log(1 − tanh²x) is written as 2·(log 2 − x − softplus(−2x)), which stays exact where tanh rounds to 1.
    """
    constant = log_std.shape[-1] * (0.5 * LOG_TWO_PI + 2.0 * math.log(2.0))
    density = noise.square() * -0.5 - log_std + (raw + functional.softplus(raw * -2.0)) * 2.0
    return density.sum(dim=-1) - constant


def gaussian_kl(mean: Tensor, log_std: Tensor, ref_mean: Tensor, ref_log_std: Tensor) -> Tensor:
    """KL (...) of the first Gaussian from the second, exact."""
    spread = (2.0 * (log_std - ref_log_std)).exp()
    shift = ((mean - ref_mean) * (-ref_log_std).exp()).square()
    return (ref_log_std - log_std + 0.5 * (spread + shift - 1.0)).sum(dim=-1)
