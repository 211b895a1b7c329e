"""Returns and generalised advantage estimation over units (arXiv:1506.02438, eq. 16).

    δ_t = r_t + γ·V_{t+1} − V_t        A_t = δ_t + γ·λ·A_{t+1}

where t runs over the COUNTED units of a row only: a unit outside the mask costs no discount and its value is
never read. Its reward is not lost: r_t is the reward of unit t plus those of the masked units that follow it,
undiscounted, up to the next counted unit (a turn's reward often sits on an end-of-reply token that the loss
does not count). Rewards before a row's first counted unit have nobody to credit and are dropped.

An episode's end cuts the recursion: after `terminated` comes 0, after `truncated` the value of the final
observation, at the end of a row `last_values`. An end may stand on a masked unit; it then ends the counted unit
before it.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def gae(
    rewards: Tensor,
    values: Tensor,
    terminated: Tensor,
    mask: Tensor,
    *,
    gamma: float,
    lam: float,
    last_values: Tensor,
    truncated: Tensor | None = None,
    truncated_values: Tensor | None = None,
) -> Tensor:
    """Advantages (b, t), 0 outside the mask and detached; `advantages + values` are the value targets.

    rewards, values, terminated, mask: (b, t); last_values: (b,), read by rows that do not end in `terminated`.
    truncated with truncated_values: (b, t), for episodes that are cut inside a row (vector environments that
    reset themselves): the value of the observation the cut episode ended on. Terminated wins over truncated.
    Rewards are read on masked units too: padding must hold reward 0.
    """
    if (truncated is None) != (truncated_values is None):
        raise ValueError("truncated and truncated_values go together: one says where, the other what comes after")
    if truncated is None or truncated_values is None:
        truncated, truncated_values = torch.zeros_like(terminated), values
    _check_shapes(rewards, values, terminated, mask, truncated, truncated_values, last_values)
    advantages = torch.zeros_like(values)
    next_value = last_values.to(values.dtype)
    next_advantage, reward = torch.zeros_like(next_value), torch.zeros_like(next_value)
    for t in reversed(range(rewards.shape[1])):
        ends = terminated[:, t] | truncated[:, t]
        next_value = torch.where(truncated[:, t], truncated_values[:, t], next_value)
        next_value = next_value.masked_fill(terminated[:, t], 0.0)
        next_advantage = next_advantage.masked_fill(ends, 0.0)
        reward = reward.masked_fill(ends, 0.0) + rewards[:, t]
        counts, value = mask[:, t], values[:, t]
        advantage = reward + gamma * next_value - value + gamma * lam * next_advantage
        advantages[:, t] = advantage.masked_fill(~counts, 0.0)
        next_value = torch.where(counts, value, next_value)
        next_advantage = torch.where(counts, advantage, next_advantage)
        reward = reward.masked_fill(counts, 0.0)
    return advantages


@torch.no_grad()
def lambda_returns(rewards: Tensor, discounts: Tensor, next_values: Tensor, *, lam: float) -> Tensor:
    """Returns (b, t) of imagined steps: R_t = r_t + γ_t·((1 − λ)·V_{t+1} + λ·R_{t+1}) (DreamerV2, arXiv:2010.02193).

    rewards, discounts, next_values: (b, t); a discount is γ times the probability that the episode goes on, the value
    that of the step after; the last return bootstraps with its value alone.
    """
    returns = torch.zeros_like(rewards)
    following = next_values[:, -1]
    for t in reversed(range(rewards.shape[1])):
        following = rewards[:, t] + discounts[:, t] * ((1 - lam) * next_values[:, t] + lam * following)
        returns[:, t] = following
    return returns


def _check_shapes(rewards: Tensor, *others: Tensor) -> None:
    """Raise unless all are (b, t) but the last, which is (b,): broadcasting would mix rows up without a word."""
    *units, last_values = others
    wrong = [tuple(x.shape) for x in units if x.shape != rewards.shape]
    if wrong or last_values.shape != rewards.shape[:1]:
        raise ValueError(
            f"rewards are {tuple(rewards.shape)}, others {wrong}, last_values {tuple(last_values.shape)}: "
            "give one of each a unit, and one last value a row"
        )


def discounted_returns(rewards: Tensor, mask: Tensor, *, gamma: float) -> Tensor:
    """Discounted sum (b, t) of the rewards from each counted unit on; a row is one episode, 0 outside the mask."""
    zeros = torch.zeros_like(rewards)
    never = torch.zeros_like(mask)
    return gae(rewards, zeros, never, mask, gamma=gamma, lam=1.0, last_values=zeros.new_zeros(len(zeros)))


@torch.no_grad()
def credit_rewards(rewards: Tensor, mask: Tensor) -> Tensor:
    """Rewards (b, t) with each masked unit's moved to the counted unit before it; before the first they are dropped."""
    slot = mask.long().cumsum(dim=1)
    sums = rewards.new_zeros(len(rewards), rewards.shape[1] + 1).scatter_add(1, slot, rewards)
    return sums.gather(1, slot).masked_fill(~mask, 0.0)
