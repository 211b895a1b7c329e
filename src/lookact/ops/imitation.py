"""Losses of learning from demonstrations: minimise them. `count` is explained in `masked_mean`."""

from __future__ import annotations

import torch
from torch import Tensor

from lookact.ops.gaussian import gaussian_logprob
from lookact.ops.masked import Metrics, masked_mean, zero_outside


def nll(logprobs: Tensor, mask: Tensor, *, count: float | Tensor | None = None) -> tuple[Tensor, Metrics]:
    """Minus the mean log-probability of the demonstrated units (b, u)."""
    loss = masked_mean(-logprobs, mask, count=count)
    return loss, {"nll": masked_mean(-logprobs.detach(), mask)}


def gaussian_nll(
    actions: Tensor, mean: Tensor, log_std: Tensor, mask: Tensor, *, count: float | Tensor | None = None
) -> tuple[Tensor, Metrics]:
    """Minus the mean log-density of demonstrated actions (b, u, a) under mean and log_std (b, u, a) or (a,)."""
    every = _per_dimension(mask, actions)
    spread = zero_outside(log_std.expand_as(actions), every)
    logprobs = gaussian_logprob(zero_outside(actions, every), zero_outside(mean, every), spread)
    return nll(logprobs, mask, count=count)


def action_mse(
    predicted: Tensor, actions: Tensor, mask: Tensor, *, count: float | Tensor | None = None
) -> tuple[Tensor, Metrics]:
    """Squared error of predicted actions (b, u, a), averaged over action dimensions and over the mask (b, u)."""
    every = _per_dimension(mask, actions)
    errors = (zero_outside(predicted, every) - zero_outside(actions, every)).square().mean(dim=-1)
    return masked_mean(errors, mask, count=count), {"mse": masked_mean(errors.detach(), mask)}


@torch.no_grad()
def token_accuracy(logits: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """Share of counted ids (b, u) that are the likeliest under logits (b, u, v); 0 if nothing counts."""
    return masked_mean((logits.argmax(dim=-1) == ids).float(), mask)


def _per_dimension(mask: Tensor, actions: Tensor) -> Tensor:
    """The mask (b, u) once for each action dimension: (b, u, a)."""
    return mask.unsqueeze(-1).expand(actions.shape)
