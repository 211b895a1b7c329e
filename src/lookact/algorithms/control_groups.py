"""RLOO and GRPO for control (SimpleVLA-RL, arXiv:2509.09674): episodes from one start, compared.

No critic is needed: an episode's advantage, for all of its steps alike, is its return against the others' of its group.
Only the first episode of each row counts. Later ones of a rollout come to their end the sooner the better they go, and
those that do would be no fair sample.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from lookact.ops.advantages import group_normalise, leave_one_out, zero_variance_groups
from lookact.ops.masked import Metrics
from lookact.rollout.vector_rollout import Rollout

Groups = tuple[Literal["rloo", "grpo"], int]
"""How returns are compared, and how many neighbouring rows are a group."""


def group_advantages(rollout: Rollout, rewards: Tensor, groups: Groups) -> tuple[Tensor, Tensor, Metrics]:
    """Advantages (t, rows) against the row's group, the steps that count, and metrics.

    rewards: (t, rows). A row whose first episode does not end in the rollout, or whose worker failed in it, counts
    nothing, nor does one that is left alone so.
    """
    kind, size = groups
    over = rollout.terminated | rollout.truncated | ~rollout.mask
    before = over.cumsum(dim=0) - over.int()
    first = before == 0
    rows = (over.any(dim=0) & (rollout.mask | ~first).all(dim=0)).nonzero().squeeze(1)
    group = rows // size
    _, index, sizes = torch.unique(group, return_inverse=True, return_counts=True)
    rows, group = rows[sizes[index] > 1], group[sizes[index] > 1]
    returns = (rewards * first).sum(dim=0)[rows]
    compared = leave_one_out(returns, group) if kind == "rloo" else group_normalise(returns, group)
    counted = torch.zeros_like(rollout.mask)
    counted[:, rows] = first[:, rows]
    advantages = torch.zeros_like(rewards)
    advantages[:, rows] = compared
    flat = zero_variance_groups(returns, group).float()
    share = flat.mean() if len(flat) else flat.new_ones(())
    return advantages * counted, counted, {"rollout/zero_variance_groups": share}
