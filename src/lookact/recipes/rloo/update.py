"""The learning half of nav-rloo: credit within groups, and the loss on the units that count."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lookact.algorithms.group_advantages import assign, episode_credit, turn_credit
from lookact.algorithms.vlm import NoReference, Reference
from lookact.batch import Batch, TokenInputs
from lookact.data.segments import Segment, cut
from lookact.models.vlm.policy import ChatVLM
from lookact.ops.advantages import zero_variance_groups
from lookact.ops.kl import k1, k2, k3, kl_loss
from lookact.ops.masked import Metrics, masked_max
from lookact.ops.policy_loss import entropy_bonus, ppo_clip
from lookact.recipes.rloo.config import Config, Learn
from lookact.training.distributed import all_reduce_sum
from lookact.training.mismatch import check_mismatch
from lookact.types import Episode

ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}


def credit(episodes: Sequence[Episode], learn: Learn, metrics: dict[str, float]) -> list[Segment]:
    """Each episode's return against the others of its group, on every unit of the episode.

    Failed episodes, and groups whose returns are all equal, carry no gradient: they are counted and left out.
    """
    whole = [episode for episode in episodes if episode.error is None]
    returns = torch.tensor([episode.total_reward for episode in whole])
    groups = torch.tensor([episode.group for episode in whole])
    useful = ~zero_variance_groups(returns, groups)
    seen = max(1.0, all_reduce_sum(len(episodes)))
    metrics["rollout/zero_variance_groups"] = 1.0 - all_reduce_sum(float(useful.sum())) / seen
    chosen = [episode for episode, keep in zip(whole, useful.tolist()) if keep]
    advantages = episode_credit(chosen) if learn.credit == "episode" else turn_credit(chosen, gamma=learn.gamma)
    if learn.scale_advantages:
        count = max(1.0, all_reduce_sum(sum(map(len, advantages))))
        deviation = (all_reduce_sum(float(sum(np.square(turns).sum() for turns in advantages))) / count) ** 0.5
        advantages = [turns / (deviation + 1e-8) for turns in advantages]
    advantages = [np.where(turns < 0, learn.blame * turns, turns) for turns in advantages]
    return [
        segment
        for episode, turns in zip(chosen, advantages)
        for segment in assign(cut(episode, units=learn.units), turns)
    ]


def objective(
    chat: ChatVLM, reference: Reference, coef: float, cfg: Config, *, first: bool
) -> Callable[[Batch[TokenInputs]], tuple[Tensor, Metrics]]:
    """REINFORCE on the counted units, an entropy bonus, and the distance to the reference."""
    filters: dict[str, Any] = {
        "temperature": cfg.sampling.temperature,
        "top_k": cfg.sampling.top_k,
        "top_p": cfg.sampling.top_p,
    }

    def loss(batch: Batch[TokenInputs]) -> tuple[Tensor, Metrics]:
        scores = chat.evaluate(batch.inputs, **filters)
        gap = parity_gap(scores.logprobs, batch, limit=cfg.learn.parity if first else math.inf)
        # with the weights that acted this is REINFORCE's gradient; the clip binds in later passes and on older episodes
        total, parts = ppo_clip(scores.logprobs, batch.logprobs, batch.advantages, batch.mask, clip=cfg.learn.clip)
        entropy = entropy_bonus(scores.entropy, batch.mask)
        metrics = {"loss/policy": total.detach(), "policy/entropy": entropy.detach(), "policy/parity_gap": gap}
        total = total - cfg.learn.entropy * entropy
        if not isinstance(reference, NoReference):
            ref = reference.evaluate(batch.inputs, **filters).logprobs
            distance, parts = kl_loss(scores.logprobs, ref, batch.mask, estimator=ESTIMATORS[cfg.kl.estimator])
            total = total + coef * distance
            metrics["policy/kl"] = parts["kl"]
        return total, metrics

    return loss


def parity_gap(logprobs: Tensor, batch: Batch[TokenInputs], *, limit: float) -> Tensor:
    """The largest difference between log-probs as sampled and as scored now, before the weights have moved."""
    # a score that is not a number is no disagreement: the step is skipped, and counted, as one that is not finite
    known = (batch.turns >= 0) & ~logprobs.isnan()
    gap = masked_max((logprobs.detach() - batch.logprobs).abs(), known)
    check_mismatch(float(gap), limit)
    return gap
