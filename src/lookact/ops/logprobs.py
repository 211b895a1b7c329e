"""Log-probabilities and entropies of units: of tokens under logits, of actions under diagonal Gaussians.

One filter for sampling tokens and for scoring them.

A ratio of probabilities is right only if the sampler and the learner mean the same distribution. Temperature,
banned ids, top-k and top-p are therefore applied by one function, `adjust_logits`, on both sides.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

NEVER = float("-inf")
LOG_TWO_PI = math.log(2.0 * math.pi)


def output_logits(hidden: Tensor, weight: Tensor) -> Tensor:
    """Logits (n, v) of hidden (n, d) under the head weight (v, d), in float32 or wider.

    Both sides of a bfloat16 run come here: rounded to bfloat16, logits of 16 to 32 are 0.125 nats apart.
    """
    wide = torch.promote_types(hidden.dtype, torch.float32)
    return linear(hidden.to(wide), weight.to(wide))


def adjust_logits(
    logits: Tensor,
    *,
    temperature: float = 1.0,
    banned: Tensor | None = None,
    top_k: int = 0,
    top_p: float = 1.0,
    keep: Tensor | None = None,
) -> Tensor:
    """Logits (..., v) of the distribution that is sampled from: -inf where a token can't come, float32 or wider.

    In this order: `banned` (v,) bool, temperature, the `top_k` likeliest (0: all), then the fewest likeliest
    that hold `top_p` of the mass. `keep` (...) names a token a row that top-k and top-p leave in: a token once
    sampled keeps a finite log-probability after the weights have moved. A banned token stays banned.
    """
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}: it must be above 0; for greedy choice use sample_tokens")
    if top_k < 0 or not 0 < top_p <= 1:
        raise ValueError(f"top_k is {top_k} and top_p is {top_p}: they must be at least 0, and in (0, 1]")
    adjusted = logits if logits.dtype == torch.float64 else logits.float()
    if banned is not None:
        adjusted = adjusted.masked_fill(banned, NEVER)
    adjusted = adjusted / temperature
    if 0 < top_k < logits.shape[-1] or top_p < 1:
        adjusted = adjusted.masked_fill(_filtered(adjusted.detach(), top_k, top_p, keep), NEVER)
    return adjusted


def _filtered(logits: Tensor, top_k: int, top_p: float, keep: Tensor | None) -> Tensor:
    """(..., v) True on the tokens that top-k and top-p remove; at least the likeliest stays."""
    # stable: among equal logits both sides keep the same ids
    ranked, order = logits.sort(dim=-1, descending=True, stable=True)
    removed = torch.zeros_like(ranked, dtype=torch.bool)
    if top_k:
        removed[..., top_k:] = True
    if top_p < 1:
        mass = ranked.masked_fill(removed, NEVER).softmax(dim=-1).double()
        removed |= mass.cumsum(dim=-1) - mass >= top_p
    removed = torch.zeros_like(removed).scatter(-1, order, removed)
    return removed if keep is None else removed.scatter(-1, keep.unsqueeze(-1), False)


def gather_logprobs(logits: Tensor, ids: Tensor) -> Tensor:
    """Log-probability (...) of ids (...) under logits (..., v); -inf for a banned id."""
    return logits.log_softmax(dim=-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def entropy_of(logits: Tensor) -> Tensor:
    """Entropy (...) in nats of logits (..., v); -inf logits add nothing and get no gradient."""
    return _entropy(logits.log_softmax(dim=-1))


def _entropy(logprobs: Tensor) -> Tensor:
    # 0 · log 0 is 0 here, not NaN
    return -(logprobs.exp() * logprobs.masked_fill(logprobs == NEVER, 0.0)).sum(dim=-1)


def score_tokens(
    hidden: Tensor,
    weight: Tensor,
    ids: Tensor,
    *,
    temperature: float = 1.0,
    banned: Tensor | None = None,
    top_k: int = 0,
    top_p: float = 1.0,
    chunk: int = 512,
) -> tuple[Tensor, Tensor]:
    """Log-probability (n,) of ids (n,) and entropy (n,) under the head weight (v, d) on hidden (n, d).

    Give counted positions only. Logits exist for `chunk` rows at a time, in the backward pass too, where they
    are computed again. The id itself is never filtered out by top-k or top-p (see `adjust_logits`).
    """

    def score(rows: Tensor, weight: Tensor, picked: Tensor) -> tuple[Tensor, Tensor]:
        logits = adjust_logits(
            output_logits(rows, weight), temperature=temperature, banned=banned, top_k=top_k, top_p=top_p, keep=picked
        )
        logprobs = logits.log_softmax(dim=-1)
        return logprobs.gather(-1, picked.unsqueeze(-1)).squeeze(-1), _entropy(logprobs)

    parts = [
        checkpoint(score, rows, weight, picked, use_reentrant=False, preserve_rng_state=False)
        for rows, picked in zip(torch.split(hidden, chunk), torch.split(ids, chunk))
    ]
    return torch.cat([logprobs for logprobs, _ in parts]), torch.cat([entropy for _, entropy in parts])


@torch.no_grad()
def sample_tokens(logits: Tensor, uniforms: Tensor | None) -> Tensor:
    """Ids (b,) from logits (b, v) by the inverse CDF at uniforms (b,) in [0, 1]; None picks the likeliest.

    A row depends on its own logits and its own uniform only, so the batch around it changes nothing. A token of
    probability 0 is never picked.
    """
    if not logits.amax(dim=-1).isfinite().all():
        raise ValueError("a row of logits has no token left, NaN or +inf: ban fewer ids, or look for a broken model")
    if uniforms is None:
        return logits.argmax(dim=-1)
    mass = logits.double().softmax(dim=-1)
    below = mass.cumsum(dim=-1)
    total = below[:, -1:]
    # at a uniform of 1, or one that rounds to it, the first token that completes the mass is still above the target
    target = torch.minimum(uniforms.double().unsqueeze(-1) * total, torch.nextafter(total, torch.zeros_like(total)))
    picked = torch.searchsorted(below, target, right=True).clamp(max=logits.shape[-1] - 1)
    # a parallel scan need not be monotone to the last bit, and could step onto an impossible token
    possible = mass.gather(-1, picked) > 0
    return torch.where(possible, picked, mass.argmax(dim=-1, keepdim=True)).squeeze(-1)


# ---- diagonal Gaussians over action vectors: axes (..., a), results (...)


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
