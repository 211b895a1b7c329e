"""Baselines over groups of episodes, returns and generalised advantages, and credit over turns and tokens.

Generalised advantage estimation (arXiv:1506.02438, eq. 16):

    δ_t = r_t + γ·V_{t+1} − V_t        A_t = δ_t + γ·λ·A_{t+1}

where t runs over the COUNTED units of a row only: a unit outside the mask costs no discount and its value is
never read. Its reward is not lost: r_t is the reward of unit t plus those of the masked units that follow it,
undiscounted, up to the next counted unit (a turn's reward often sits on an end-of-reply token that the loss
does not count). Rewards before a row's first counted unit have nobody to credit and are dropped.

An episode's end cuts the recursion: after `terminated` comes 0, after `truncated` the value of the final
observation, at the end of a row `last_values`. An end may stand on a masked unit; it then ends the counted unit
before it.

Turns first, then tokens (after VAGEN, arXiv:2510.16907). Let turn k of a row have the counted units 1…n with
values V_1…V_n and rewards r_1…r_n, where a masked unit's reward has moved to the counted unit before it. The
turn's reward is R_k = r_1 + … + r_n and its value is that of its first counted unit, W_k = V_1.

    turns:    A_k = R_k + γ_turn·W_{k+1} − W_k + γ_turn·λ_turn·A_{k+1}
    tokens:   a_i = r_i + γ_token·V_{i+1} − V_i + γ_token·λ_token·a_{i+1}       for i < n
              a_n = r_n + γ_turn·(W_{k+1} + λ_turn·A_{k+1}) − V_n

At a turn's last unit the token recursion goes on into the turn recursion, and only there does a turn's discount
apply. In other words a_n = A_k + W_k − V_n − (r_1 + … + r_{n−1}): the turn's advantage, measured from the last
unit's own value, less what the units before it were already paid. A turn of one unit has a_1 = A_k; with
γ_token = λ_token = 1 the first unit of every turn has a_1 = A_k; with all four at 1, a_i is return minus value.
Giving a_n = A_k outright would count V_n − V_1 twice. After the last turn comes `last_values`, or 0 if terminated.
"""

from __future__ import annotations

import torch
from torch import Tensor

# ---- baselines over groups


@torch.no_grad()
def leave_one_out(returns: Tensor, groups: Tensor) -> Tensor:
    """Each return (b,) minus the mean of the other returns of its group (arXiv:2402.14740, eq. 7).

    groups: (b,) ids, in any order. A group of one has no baseline and raises.
    """
    names, index, sizes = _members(groups)
    if (sizes < 2).any():
        alone = names[sizes < 2].tolist()
        raise ValueError(f"group {', '.join(map(str, alone))} has one episode and so no baseline: collect at least two")
    wide = returns.double()
    others = _group_sum(wide, index, len(names))[index] - wide
    return (wide - others / (sizes[index] - 1)).to(returns.dtype)


@torch.no_grad()
def group_centre(returns: Tensor, groups: Tensor) -> Tensor:
    """Each return (b,) minus its group's mean, itself included (Dr. GRPO, arXiv:2503.20783). A group of one gives 0."""
    names, index, sizes = _members(groups)
    wide = returns.double()
    return (wide - (_group_sum(wide, index, len(names)) / sizes)[index]).to(returns.dtype)


@torch.no_grad()
def group_normalise(returns: Tensor, groups: Tensor, *, eps: float = 1e-6) -> Tensor:
    """Returns (b,) centred and divided by their group's sample deviation (GRPO, arXiv:2402.03300, §4.1.2).

    The deviation divides by n − 1, as in TRL and verl. A group of one, or of equal returns, gives 0.
    """
    names, index, sizes = _members(groups)
    wide = returns.double()
    centred = wide - (_group_sum(wide, index, len(names)) / sizes)[index]
    deviation = (_group_sum(centred.square(), index, len(names)) / (sizes - 1).clamp(min=1)).sqrt()[index]
    flat = zero_variance_groups(returns, groups)
    return (centred / (deviation + eps)).masked_fill(flat, 0.0).to(returns.dtype)


@torch.no_grad()
def anchor_groups(groups: Tensor, anchors: Tensor) -> Tensor:
    """(n,) one id for each pair of a group and an anchor state: GiGPO's step-level groups (arXiv:2505.10978, eq. 6).

    groups, anchors: (n,) of turns. Turns of one group that were taken in the same state are compared with each other,
    by `leave_one_out`, `group_centre` or `group_normalise` on their discounted rewards-to-go; a state that was visited
    once has a group of one, and so no step-level advantage.
    """
    pairs = torch.stack([groups, anchors], dim=1)
    ids: Tensor = torch.unique(pairs, dim=0, return_inverse=True)[1]
    return ids


@torch.no_grad()
def zero_variance_groups(returns: Tensor, groups: Tensor) -> Tensor:
    """(b,) True on the rows whose group has one return only, or equal ones: they carry no gradient."""
    names, index, _ = _members(groups)
    empty = returns.new_zeros(len(names))
    low = empty.scatter_reduce(0, index, returns, "amin", include_self=False)
    high = empty.scatter_reduce(0, index, returns, "amax", include_self=False)
    return (low == high)[index]


def _members(groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct groups (g,), each row's place among them (b,), and how many rows each has (g,)."""
    names, index, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
    return names, index, sizes


def _group_sum(x: Tensor, index: Tensor, size: int) -> Tensor:
    return x.new_zeros(size).index_add(0, index, x)


# ---- returns and GAE


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


def _check_shapes(rewards: Tensor, *others: Tensor) -> None:
    """Raise unless all are (b, t) but the last, which is (b,): broadcasting would mix rows up without a word."""
    *units, last_values = others
    wrong = [tuple(x.shape) for x in units if x.shape != rewards.shape]
    if wrong or last_values.shape != rewards.shape[:1]:
        raise ValueError(
            f"rewards are {tuple(rewards.shape)}, others {wrong}, last_values {tuple(last_values.shape)}: "
            "give one of each a unit, and one last value a row"
        )


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


# ---- credit over turns and tokens


@torch.no_grad()
def monte_carlo(rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float) -> Tensor:
    """Discounted return minus value (b, u), 0 outside the mask."""
    return (discounted_returns(rewards, mask, gamma=gamma) - values).masked_fill(~mask, 0.0)


@torch.no_grad()
def turn_gae(
    rewards: Tensor,
    values: Tensor,
    turns: Tensor,
    mask: Tensor,
    *,
    gamma: float,
    lam: float,
    terminated: Tensor,
    last_values: Tensor,
) -> Tensor:
    """The turn's advantage A_k on each of its counted units: (b, u), 0 outside the mask.

    rewards, values, mask: (b, u); turns: (b, u) index of each unit's turn, -1 on padding; terminated (b,) bool;
    last_values (b,), read by rows that did not terminate.
    """
    advantages, _ = _turn_level(rewards, values, turns, mask, gamma, lam, terminated, last_values)
    return advantages.gather(1, turns.clamp(min=0)).masked_fill(~mask, 0.0)


@torch.no_grad()
def bilevel_gae(
    rewards: Tensor,
    values: Tensor,
    turns: Tensor,
    mask: Tensor,
    *,
    gamma_turn: float,
    lam_turn: float,
    gamma_token: float,
    lam_token: float,
    terminated: Tensor,
    last_values: Tensor,
) -> Tensor:
    """Advantages (b, u) by GAE over turns, then over the tokens inside each turn, as the module's head derives.

    rewards, values, mask: (b, u); turns: (b, u) index of each unit's turn, -1 on padding; terminated (b,) bool;
    last_values (b,), read by rows that did not terminate.
    """
    _, beyond = _turn_level(rewards, values, turns, mask, gamma_turn, lam_turn, terminated, last_values)
    closing = _openings(turns.flip(1), mask.flip(1)).flip(1)
    after = beyond.gather(1, turns.clamp(min=0)).masked_fill(~closing, 0.0)
    paid = credit_rewards(rewards, mask) + after
    return gae(paid, values, closing, mask, gamma=gamma_token, lam=lam_token, last_values=last_values)


def _turn_level(
    rewards: Tensor,
    values: Tensor,
    turns: Tensor,
    mask: Tensor,
    gamma: float,
    lam: float,
    terminated: Tensor,
    last_values: Tensor,
) -> tuple[Tensor, Tensor]:
    """Each turn's advantage A_k (b, turns), and what comes after the turn, γ·(W_{k+1} + λ·A_{k+1}) (b, turns)."""
    slot = turns.clamp(min=0)
    blank = values.new_zeros(len(turns), _turn_slots(turns))
    turn_rewards = blank.scatter_add(1, slot, credit_rewards(rewards, mask).to(values.dtype))
    opening = _openings(turns, mask)
    turn_values = blank.scatter_add(1, slot, values.masked_fill(~opening, 0.0))
    counts = blank.scatter_add(1, slot, opening.to(values.dtype)) > 0
    never = torch.zeros_like(counts)
    bootstrap = last_values.masked_fill(terminated, 0.0)
    advantages = gae(turn_rewards, turn_values, never, counts, gamma=gamma, lam=lam, last_values=bootstrap)
    return advantages, advantages + turn_values - turn_rewards


def _openings(turns: Tensor, mask: Tensor) -> Tensor:
    """(b, u) True on the first counted unit of each turn; on flipped inputs, the last."""
    length = turns.shape[1]
    position = torch.arange(length, device=turns.device).expand_as(turns)
    slot = turns.clamp(min=0)
    first = turns.new_full((len(turns), _turn_slots(turns)), length)
    first = first.scatter_reduce(1, slot, position.masked_fill(~mask, length), "amin")
    return mask & (position == first.gather(1, slot))


def _turn_slots(turns: Tensor) -> int:
    return max(int(turns.max()) + 1, 1) if turns.numel() else 1
