"""Losses over units, to be minimised: policy gradients, KL, values, imitation.

Advantages, old log-probabilities, targets and weights are constants; `weights` (b, u) multiply each unit, as
`truncated_importance` gives them. Losses are means over the counted units at hand: the sum over micro-batches, each
times its share of all counted units (`training.optim.weighted`), is the mean over all.

Estimators of KL(policy ‖ reference) from sampled units, with d = log p_ref − log p on units that the policy sampled
(Schulman, "Approximating KL divergence", 2020):

    k1 = −d          unbiased, of either sign; its gradient as a loss is 0 on average: use it to shape rewards
    k2 = d²/2        biased, never negative; as a loss its gradient IS that of the KL
    k3 = e^d − 1 − d unbiased, never negative, calmer than k1; as a loss its gradient is that of KL(ref ‖ policy)

k3 stands still beyond d = 20 nats, where e^d would drown every other unit or overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from lookact.ops.logprobs import gaussian_logprob
from lookact.ops.masked import (
    Metrics,
    masked_mean,
    masked_means,
    masked_variance,
    mean_of_kept,
    units_of,
    zero_outside,
)

Aggregation = Literal["token", "sequence", "constant"]
MAX_LOG_RATIO = 20.0


# ---- policy gradients


def reinforce(
    logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    weights: Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """−A·log p, averaged over the mask. logprobs, mask: (b, u); advantages: (b, u), or (b, 1) for one an episode."""
    kept = zero_outside(logprobs, mask)
    scale = _constants(advantages, weights, mask)
    metrics = masked_means(mask, logprob=kept, advantage=zero_outside(advantages, mask))
    return -mean_of_kept(scale * kept, mask), metrics


def ppo_clip(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float,
    clip_high: float | None = None,
    dual_clip: float | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """−min(ρA, clip(ρ, 1−clip, 1+clip_high)·A) over the mask, ρ = p/p_old (arXiv:1707.06347, eq. 7).

    logprobs, old_logprobs, mask: (b, u); advantages: (b, u) or (b, 1). `clip_high` (clip if None) loosens the
    upper side only (arXiv:2503.14476). `dual_clip` > 1 keeps the objective above dual_clip·A where A < 0
    (arXiv:1912.09729), so that one runaway ratio can't rule the batch.
    """
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip is {dual_clip}: it must be above 1")
    kept = zero_outside(logprobs, mask)
    old = zero_outside(old_logprobs, mask).detach()
    scale = _constants(advantages, weights, mask)
    ratio = bounded_ratio(kept, old)
    free = ratio * scale
    clipped = ratio.clamp(1.0 - clip, 1.0 + (clip if clip_high is None else clip_high)) * scale
    objective = torch.minimum(free, clipped)
    if dual_clip is not None:
        objective = torch.where(scale < 0, torch.maximum(objective, dual_clip * scale), objective)
    with torch.no_grad():
        stopped = (clipped < free).to(ratio.dtype)
        metrics = masked_means(mask, ratio=ratio, clip_fraction=stopped, approx_kl=k3(old, kept))
    return -mean_of_kept(objective, mask), metrics


def gspo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float,
    clip_high: float | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """PPO's clip on the sequence's ratio s = exp(mean of log p − log p_old over the row) (arXiv:2507.18071, eq. 13).

    The token form: each unit has value s and the gradient of its own log-probability, so that turns of one row may have
    advantages of their own; with one advantage a row, and `sequence` aggregation, it is GSPO's eq. 5. s is a
    geometric mean and stays close to 1: clips are a hundred times smaller than PPO's (3e-4).
    """
    kept = zero_outside(logprobs, mask)
    old = zero_outside(old_logprobs, mask).detach()
    scale = _constants(advantages, weights, mask)
    mean_gap = (kept - old).detach().sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    ratio = zero_outside(mean_gap.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp(), mask) * (kept - kept.detach()).exp()
    free = ratio * scale
    clipped = ratio.clamp(1.0 - clip, 1.0 + (clip if clip_high is None else clip_high)) * scale
    with torch.no_grad():
        stopped = (clipped < free).to(ratio.dtype)
        metrics = masked_means(mask, ratio=ratio, clip_fraction=stopped, approx_kl=k3(old, kept))
    return -mean_of_kept(torch.minimum(free, clipped), mask), metrics


def cispo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float,
    clip_high: float | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """−clip(ρ, 1−clip, 1+clip_high)·A·log p: REINFORCE weighted by the clipped ratio, a constant (arXiv:2506.13585).

    PPO drops the gradient of a clipped unit; here every unit keeps one, and only its weight is bounded.
    """
    kept = zero_outside(logprobs, mask)
    old = zero_outside(old_logprobs, mask).detach()
    scale = _constants(advantages, weights, mask)
    with torch.no_grad():
        ratio = bounded_ratio(kept, old)
        bounded = ratio.clamp(1.0 - clip, 1.0 + (clip if clip_high is None else clip_high))
        metrics = masked_means(
            mask, ratio=ratio, clip_fraction=(bounded != ratio).to(ratio.dtype), approx_kl=k3(old, kept)
        )
    return -mean_of_kept(bounded * scale * kept, mask), metrics


@torch.no_grad()
def aggregation_weights(mask: Tensor, how: Aggregation, *, horizon: int | None = None) -> Tensor:
    """What each unit of mask (b, u) weighs, 0 outside it, so that the mean over units becomes another mean of the loss.

    token: every unit alike, long episodes count more. sequence: every row alike (GRPO, arXiv:2402.03300, eq. 3).
    constant: the row's sum over `horizon`, the longest a row can be, whatever its length (Dr. GRPO, arXiv:2503.20783).
    Give the mask of the whole batch.
    """
    units = mask.sum(dim=1, keepdim=True)
    rows = (units > 0).sum().clamp(min=1)
    if how == "token":
        return mask.float()
    if how == "sequence":
        return mask * (units_of(mask) / (rows * units.clamp(min=1)))
    if horizon is None or horizon < 1:
        raise ValueError(f"constant aggregation needs a horizon of at least 1, found {horizon}")
    return mask * (units_of(mask) / (rows * horizon))


def entropy_bonus(entropy: Tensor, mask: Tensor) -> Tensor:
    """Mean entropy over the mask (b, u): subtract it from the loss, times a coefficient."""
    return masked_mean(entropy, mask)


def _constants(advantages: Tensor, weights: Tensor | None, mask: Tensor) -> Tensor:
    """(b, u) what multiplies each unit: its advantage times its weight, without gradient."""
    scale = zero_outside(advantages, mask).detach()
    return scale if weights is None else scale * zero_outside(weights, mask).detach()


# ---- KL to a reference


def k1(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """log p − log p_ref, unit by unit."""
    return logprobs - ref_logprobs


def k2(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Half the squared log-ratio, unit by unit."""
    return 0.5 * (logprobs - ref_logprobs).square()


def k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """e^d − 1 − d with d = log p_ref − log p, unit by unit."""
    gap = (ref_logprobs - logprobs).clamp(max=MAX_LOG_RATIO)
    return gap.expm1() - gap


def bounded_ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """p / p_old, unit by unit, with its logarithm held within ±20 so that it stays finite."""
    return (logprobs - old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def kl_loss(
    logprobs: Tensor,
    ref_logprobs: Tensor,
    mask: Tensor,
    *,
    estimator: Callable[[Tensor, Tensor], Tensor] = k3,
) -> tuple[Tensor, Metrics]:
    """Mean of an estimator over the mask (b, u); k2 or k3, since the gradient of k1 is only noise."""
    kept = zero_outside(logprobs, mask)
    kept_ref = zero_outside(ref_logprobs, mask).detach()
    divergence = estimator(kept, kept_ref)
    metrics = {
        "kl": masked_mean(divergence.detach(), mask),
        "kl_k1": masked_mean(k1(kept, kept_ref).detach(), mask),
    }
    return masked_mean(divergence, mask), metrics


class AdaptiveKL:
    """A KL coefficient that grows while the KL is above its target and shrinks below it (arXiv:1909.08593, eq. 5)."""

    def __init__(self, coef: float, target: float, horizon: int) -> None:
        if coef < 0 or target <= 0 or horizon <= 0:
            raise ValueError(
                f"coef {coef}, target {target}, horizon {horizon}: coef may be 0, the others must be above"
            )
        self.coef = coef
        self.target = target
        self.horizon = horizon

    def update(self, kl: float, n: int) -> float:
        """coef *= 1 + clip(kl/target − 1, ±0.2)·n/horizon after n units (or episodes, as horizon counts them)."""
        if not math.isfinite(kl):
            raise ValueError(f"the KL is {kl}: the coefficient can't follow it; look for broken log-probabilities")
        error = min(max(kl / self.target - 1.0, -0.2), 0.2)
        factor = 1.0 + error * n / self.horizon
        if factor <= 0:
            raise ValueError(f"{n} units on a horizon of {self.horizon} turn the coefficient negative: lengthen it")
        self.coef *= factor
        return self.coef

    def state_dict(self) -> dict[str, Any]:
        return {"coef": self.coef}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.coef = float(state["coef"])


# ---- values


def clipped_value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    clip: float,
) -> tuple[Tensor, Metrics]:
    """½·max((V−R)², (V_clip−R)²) over the mask (b, u), V_clip within ±clip of the old value.

    A value that has already moved by `clip` towards its target gets no further gradient.
    """
    kept = zero_outside(values, mask)
    old = zero_outside(old_values, mask).detach()
    targets = zero_outside(returns, mask).detach()
    near = old + (kept - old).clamp(-clip, clip)
    free_error, near_error = (kept - targets).square(), (near - targets).square()
    metrics = masked_means(mask, clip_fraction=(near_error > free_error).to(kept.dtype))
    return mean_of_kept(torch.maximum(free_error, near_error), mask) * 0.5, metrics


def huber_value_loss(values: Tensor, returns: Tensor, mask: Tensor, *, delta: float) -> tuple[Tensor, Metrics]:
    """½e² up to |e| = delta, then linear with slope delta, over the mask (b, u): no wild return rules the batch."""
    kept = zero_outside(values, mask)
    targets = zero_outside(returns, mask).detach()
    errors = functional.huber_loss(kept, targets, reduction="none", delta=delta)
    return mean_of_kept(errors, mask), {}


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, *, kind: str, clip: float) -> Tensor:
    """One of the two above by its name: `clipped`, or `huber` with `clip` as its delta."""
    if kind == "clipped":
        return clipped_value_loss(values, old_values, returns, mask, clip=clip)[0]
    return huber_value_loss(values, returns, mask, delta=clip)[0]


@torch.no_grad()
def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """1 − var(R − V)/var(R) over the mask (b, u): 1 is perfect, 0 no better than a constant; 0 if R does not vary."""
    targets = zero_outside(returns, mask)
    spread = masked_variance(targets, mask)
    rest = masked_variance(targets.double() - zero_outside(values, mask).double(), mask)
    explained = torch.where(spread > 0, 1.0 - rest / spread.clamp(min=torch.finfo(spread.dtype).tiny), 0.0)
    return explained.to(values.dtype)


# ---- imitation


def nll(logprobs: Tensor, mask: Tensor) -> tuple[Tensor, Metrics]:
    """Minus the mean log-probability of the demonstrated units (b, u)."""
    loss = masked_mean(-logprobs, mask)
    return loss, {"nll": masked_mean(-logprobs.detach(), mask)}


def gaussian_nll(actions: Tensor, mean: Tensor, log_std: Tensor, mask: Tensor) -> tuple[Tensor, Metrics]:
    """Minus the mean log-density of demonstrated actions (b, u, a) under mean and log_std (b, u, a) or (a,)."""
    every = _per_dimension(mask, actions)
    spread = zero_outside(log_std.expand_as(actions), every)
    logprobs = gaussian_logprob(zero_outside(actions, every), zero_outside(mean, every), spread)
    return nll(logprobs, mask)


def action_mse(predicted: Tensor, actions: Tensor, mask: Tensor) -> tuple[Tensor, Metrics]:
    """Squared error of predicted actions (b, u, a), averaged over action dimensions and over the mask (b, u)."""
    every = _per_dimension(mask, actions)
    errors = (zero_outside(predicted, every) - zero_outside(actions, every)).square().mean(dim=-1)
    return masked_mean(errors, mask), {"mse": masked_mean(errors.detach(), mask)}


@torch.no_grad()
def token_accuracy(logits: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """Share of counted ids (b, u) that are the likeliest under logits (b, u, v); 0 if nothing counts."""
    return masked_mean((logits.argmax(dim=-1) == ids).float(), mask)


def _per_dimension(mask: Tensor, actions: Tensor) -> Tensor:
    """The mask (b, u) once for each action dimension: (b, u, a)."""
    return mask.unsqueeze(-1).expand(actions.shape)
