"""Diagonal Gaussians over action vectors. Axes: (..., a); results: (...)."""

from __future__ import annotations

import math

from torch import Tensor

LOG_TWO_PI = math.log(2.0 * math.pi)


def gaussian_logprob(actions: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Log-density (...) of actions (..., a); log_std (..., a) or (a,)."""
    scaled = (actions - mean) * (-log_std).exp()
    return (-0.5 * scaled.square() - log_std - 0.5 * LOG_TWO_PI).sum(dim=-1)


def gaussian_entropy(log_std: Tensor) -> Tensor:
    """Entropy (...) in nats of log_std (..., a)."""
    return (log_std + 0.5 * (1.0 + LOG_TWO_PI)).sum(dim=-1)


def gaussian_kl(mean: Tensor, log_std: Tensor, ref_mean: Tensor, ref_log_std: Tensor) -> Tensor:
    """KL (...) of the first Gaussian from the second, exact."""
    spread = (2.0 * (log_std - ref_log_std)).exp()
    shift = ((mean - ref_mean) * (-ref_log_std).exp()).square()
    return (ref_log_std - log_std + 0.5 * (spread + shift - 1.0)).sum(dim=-1)
