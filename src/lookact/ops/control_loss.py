"""PPO's whole loss for a Gaussian policy, with its gradient written out: minimise it.

Over n steps that all count, with ρ = p(a)/p_old(a):

    L = mean( −min(ρA, clip(ρ)·A) + c_v·value error − c_e·entropy + c_k·KL(policy ‖ reference) )

It is `ppo_clip`, `clipped_value_loss` or `huber_value_loss`, `gaussian_entropy` and `gaussian_kl` in one. A small
network's step spends most of its time on walking through the many little operations of these and back; the closed form
needs a third of them, and for arrays as short as a minibatch numpy does each at a fraction of torch's price.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.ops.gaussian import LOG_TWO_PI
from lookact.ops.kl import MAX_LOG_RATIO

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Steps:
    """What was done and what came of it; all are constants."""

    actions: Tensor
    """(n, a)"""
    old_logprobs: Tensor
    """(n,), as all that follow."""
    old_values: Tensor
    advantages: Tensor
    returns: Tensor
    """The values' targets."""


def gaussian_ppo(
    mean: Tensor,
    log_std: Tensor,
    values: Tensor,
    steps: Steps,
    *,
    clip: float,
    clip_high: float,
    value_coef: float,
    huber: float | None,
    value_clip: float,
    entropy_coef: float,
    kl_coef: float = 0.0,
    reference: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """mean (n, a), log_std (a,), values (n,); `huber` None clips values to within `value_clip` of the old ones.

    reference: mean (n, a) and log_std (a,) to stay close to.
    """
    acts, old_logprobs, advantages = (_array(x) for x in (steps.actions, steps.old_logprobs, steps.advantages))
    middle, spread, size = _array(mean), _array(log_std), log_std.shape[0]
    n, inverse = len(acts), np.exp(-spread)
    scaled = (acts - middle) * inverse
    away = scaled * scaled
    sharpness = spread.sum() + 0.5 * LOG_TWO_PI * size
    gap = -0.5 * away.sum(axis=-1) - sharpness - old_logprobs
    gap = np.minimum(np.maximum(gap, -MAX_LOG_RATIO), MAX_LOG_RATIO)
    ratio = np.exp(gap)
    free = ratio * advantages
    near = np.minimum(np.maximum(ratio, 1.0 - clip), 1.0 + clip_high) * advantages
    kept = free <= near
    surrogate = -np.minimum(free, near).mean()
    pull = np.where(kept & (gap < MAX_LOG_RATIO), free, 0.0) / -n
    grad_mean = pull[:, None] * scaled * inverse
    grad_log_std = pull @ (away - 1.0) - entropy_coef
    value, slope = _value_error(values, steps, huber, value_clip)
    entropy = sharpness + 0.5 * size
    total = surrogate + value_coef * value - entropy_coef * entropy
    metrics = {
        "loss/policy": surrogate,
        "loss/value": value,
        "policy/entropy": entropy,
        "policy/clip_fraction": 1.0 - kept.mean(),
        # k3 of the acting policy from this one, on what it sampled
        "policy/approx_kl": (ratio - 1.0 - gap).mean(),
    }
    if reference is not None:
        distance, push_mean, push_log_std = _distance(middle, spread, *(_array(x) for x in reference))
        total = total + kl_coef * distance
        grad_mean, grad_log_std = grad_mean + kl_coef * push_mean, grad_log_std + kl_coef * push_log_std
        metrics["policy/kl"] = distance
    parts = ((mean, grad_mean), (log_std, grad_log_std), (values, value_coef * slope))
    return _with_gradient(total, parts), {name: float(number) for name, number in metrics.items()}


def critic_loss(
    values: Tensor, steps: Steps, *, huber: float | None, value_clip: float
) -> tuple[Tensor, dict[str, float]]:
    """The value error alone: values (n,)."""
    value, slope = _value_error(values, steps, huber, value_clip)
    return _with_gradient(value, ((values, slope),)), {"loss/value": float(value)}


def _value_error(values: Tensor, steps: Steps, huber: float | None, clip: float) -> tuple[Any, Array]:
    """The mean error and its gradient (n,)."""
    now = _array(values)
    n, error = len(now), now - _array(steps.returns)
    if huber is not None:
        slope = np.minimum(np.maximum(error, -huber), huber)
        # ½e² inside, δ(|e| − δ/2) outside: both are slope·(e − slope/2)
        return (slope * (error - 0.5 * slope)).mean(), slope / n
    moved = now - _array(steps.old_values)
    near_error = error - moved + np.minimum(np.maximum(moved, -clip), clip)
    larger = np.abs(near_error) > np.abs(error)
    chosen = np.where(larger, near_error, error)
    # a value that has moved as far as it may gets no further gradient
    slope = np.where(larger & (np.abs(moved) > clip), 0.0, chosen)
    return 0.5 * (chosen * chosen).mean(), slope / n


def _distance(mean: Array, log_std: Array, far_mean: Array, far_log_std: Array) -> tuple[Any, Array, Array]:
    """The mean KL, and its gradients by mean (n, a) and log_std (a,)."""
    precision = np.exp(-2.0 * far_log_std)
    shift, spread = mean - far_mean, np.exp(2.0 * (log_std - far_log_std))
    pull = shift * precision
    fixed = (far_log_std - log_std + 0.5 * (spread - 1.0)).sum()
    return fixed + 0.5 * (shift * pull).sum() / len(mean), pull / len(mean), spread - 1.0


def _array(x: Tensor) -> Array:
    return x.detach().cpu().numpy()


def _with_gradient(total: Any, parts: Sequence[tuple[Tensor, Array]]) -> Tensor:
    """A number that autograd takes for a loss of this value, with these gradients by these tensors."""
    learned = [(x, torch.from_numpy(np.asarray(slope)).to(x)) for x, slope in parts if x.requires_grad]
    first, *others = [torch.dot(x.flatten(), slope.flatten()) for x, slope in learned]
    line = sum(others, first)
    return line + (float(total) - line.detach())
