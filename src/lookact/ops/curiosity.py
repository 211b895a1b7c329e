"""Intrinsic rewards: token entropy, ensemble disagreement, memory divergence, k-NN novelty; without gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from lookact.ops.logprobs import entropy_of


@torch.no_grad()
def token_uncertainty(logits: Tensor) -> Tensor:
    """Mean entropy (b,) in nats of the tokens predicted with logits (b, n, v)."""
    return entropy_of(logits).mean(dim=-1)


@torch.no_grad()
def ensemble_disagreement(predictions: Tensor) -> Tensor:
    """Variance between members, averaged over features (b,), of predictions (members, b, d); 0 for one member."""
    return predictions.var(dim=0, correction=0).mean(dim=-1)


@torch.no_grad()
def memory_divergence(before: Tensor, after: Tensor) -> Tensor:
    """How far a step moved the memory (b,): ‖after − before‖ / (‖after‖ + ‖before‖) of states (layers, b, h).

    Between 0 and 1; 0 where both are zero.
    """
    # the norm of float32 entries overflows in float32
    old = before.double().transpose(0, 1).flatten(1)
    new = after.double().transpose(0, 1).flatten(1)
    size = _row_norm(old) + _row_norm(new)
    return (_row_norm(new - old) / size.clamp(min=torch.finfo(size.dtype).tiny)).to(after.dtype)


def _row_norm(x: Tensor) -> Tensor:
    return x.square().sum(dim=1).sqrt()


@torch.no_grad()
def knn_entropy_reward(states: Tensor, pool: Tensor, k: int, *, chunk: int = 8192) -> Tensor:
    """log(1 + distance to the k-th nearest state of the pool) (b,), after PEBBLE (arXiv:2106.05091, eq. 5).

    states: (b, s); pool: (n, s). A state that is in the pool itself is its own nearest: ask for one more. A pool
    smaller than k answers with its farthest state.
    """
    if k < 1 or not len(pool):
        raise ValueError(f"k is {k} and the pool holds {len(pool)} states: both must be at least 1")
    # the fast matrix form of the distance loses half its digits, so it gets twice as many
    wide = states.double()
    nearest = wide.new_empty(len(states), 0)
    for part in torch.split(pool.double(), chunk):
        found = torch.cat([nearest, torch.cdist(wide, part)], dim=1)
        nearest = found.topk(min(k, found.shape[1]), largest=False).values
    return nearest[:, -1].log1p().to(states.dtype)
