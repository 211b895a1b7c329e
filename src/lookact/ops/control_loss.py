"""PPO's whole loss for a Gaussian policy, with its gradient written out: minimise it.

Over n steps that all count, with ρ = p(a)/p_old(a):

    L = mean( −min(ρA, clip(ρ)·A) + c_v·value error − c_e·entropy + c_k·KL(policy ‖ reference) )

It is `ppo_clip`, `clipped_value_loss` or `huber_value_loss`, `gaussian_entropy` and `gaussian_kl` in one. A small
network's step spends most of its time on walking through the many little operations of these and back; the closed form
needs a third of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lookact.ops.gaussian import LOG_TWO_PI
from lookact.ops.kl import MAX_LOG_RATIO
from lookact.ops.masked import Metrics


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
) -> tuple[Tensor, Metrics]:
    """mean (n, a), log_std (a,), values (n,); `huber` None clips values to within `value_clip` of the old ones.

    reference: mean (n, a) and log_std (a,) to stay close to.
    """
    with torch.no_grad():
        n, inverse = len(values), (-log_std).exp()
        scaled = (steps.actions - mean) * inverse
        away = scaled.square()
        sharpness = log_std.sum() + 0.5 * LOG_TWO_PI * len(log_std)
        gap = (-0.5 * away.sum(dim=-1) - sharpness - steps.old_logprobs).clamp_(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        ratio = gap.exp()
        free = ratio * steps.advantages
        near = ratio.clamp(1.0 - clip, 1.0 + clip_high) * steps.advantages
        kept = free <= near
        surrogate = -torch.where(kept, free, near).sum() / n
        pull = torch.where(kept & (gap.abs() < MAX_LOG_RATIO), free, torch.zeros_like(free)) / -n
        grad_mean = pull.unsqueeze(-1) * scaled * inverse
        grad_log_std = pull @ (away - 1.0) - entropy_coef
        value, slope = _value_error(values, steps, huber, value_clip)
        entropy = sharpness + 0.5 * len(log_std)
        total = surrogate + value_coef * value - entropy_coef * entropy
        metrics = {
            "loss/policy": surrogate,
            "loss/value": value,
            "policy/entropy": entropy,
            "policy/ratio": ratio.mean(),
            "policy/clip_fraction": 1.0 - kept.float().mean(),
            # k3 of the acting policy from this one, on what it sampled
            "policy/approx_kl": (ratio - 1.0 - gap).mean(),
        }
        if reference is not None:
            distance, push_mean, push_log_std = _distance(mean, log_std, *reference)
            total = total + kl_coef * distance
            grad_mean, grad_log_std = grad_mean + kl_coef * push_mean, grad_log_std + kl_coef * push_log_std
            metrics["policy/kl"] = distance
    parts = ((mean, grad_mean), (log_std, grad_log_std), (values, value_coef * slope))
    return _with_gradient(total, [part for part in parts if part[0].requires_grad]), metrics


def critic_loss(values: Tensor, steps: Steps, *, huber: float | None, value_clip: float) -> tuple[Tensor, Metrics]:
    """The value error alone: values (n,)."""
    with torch.no_grad():
        value, slope = _value_error(values, steps, huber, value_clip)
    return _with_gradient(value, [(values, slope)]), {"loss/value": value}


def _value_error(values: Tensor, steps: Steps, huber: float | None, clip: float) -> tuple[Tensor, Tensor]:
    """The mean error and its gradient (n,)."""
    n, error = len(values), values - steps.returns
    if huber is not None:
        slope = error.clamp(-huber, huber)
        # ½e² inside, δ(|e| − δ/2) outside: both are slope·(e − slope/2)
        return (slope * (error - 0.5 * slope)).sum() / n, slope / n
    moved = values - steps.old_values
    near_error = error - moved + moved.clamp(-clip, clip)
    larger = near_error.square() > error.square()
    chosen = torch.where(larger, near_error, error)
    # a value that has moved as far as it may gets no further gradient
    slope = torch.where(larger & (moved.abs() > clip), torch.zeros_like(error), chosen)
    return 0.5 * chosen.square().sum() / n, slope / n


def _distance(mean: Tensor, log_std: Tensor, far_mean: Tensor, far_log_std: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The mean KL, and its gradients by mean (n, a) and log_std (a,)."""
    precision = (-2.0 * far_log_std).exp()
    shift, spread = mean - far_mean, (2.0 * (log_std - far_log_std)).exp()
    pull = shift * precision
    fixed = (far_log_std - log_std + 0.5 * (spread - 1.0)).sum()
    return fixed + 0.5 * (shift * pull).sum() / len(mean), pull / len(mean), spread - 1.0


def _with_gradient(total: Tensor, parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """A number that autograd takes for a loss of this value, with these gradients by these tensors."""
    line = torch.stack([torch.dot(x.flatten(), slope.flatten()) for x, slope in parts]).sum()
    return line + (total - line.detach())
