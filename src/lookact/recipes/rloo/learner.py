"""Policy and reference of RLOO, with the optimizer and the KL coefficient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.optim import Optimizer

from lookact.models.vlm.loading import save_processor
from lookact.models.vlm.policy import ChatVLM
from lookact.models.vlm.reference import CopyReference, NoReference, Reference, open_reference
from lookact.ops.losses import AdaptiveKL
from lookact.ops.mismatch import MismatchLimits, mismatch_limits
from lookact.recipes.rloo.config import Config
from lookact.training.distributed import shard_policy
from lookact.training.optim import NonFiniteGuard, build_adamw


@dataclass(frozen=True)
class Learner:
    """What learns, and what a checkpoint keeps of it."""

    policy: ChatVLM
    reference: Reference | None
    optimizer: Optimizer
    guard: NonFiniteGuard
    kl_coef: AdaptiveKL

    def saved(self) -> dict[str, Any]:
        """What `run.save` and `run.restore` take."""
        weights = {"model": self.policy.model, "readers": partial(save_processor, self.policy)}
        state = {
            "optimizer": self.optimizer,
            "guard": self.guard,
            "kl": self.kl_coef,
            "reference": self.reference or NoReference(),
        }
        return {"weights": weights, "state": state}


def follow_reference(learner: Learner, cfg: Config, means: Mapping[str, float]) -> dict[str, float]:
    """After an update: move an EMA reference, and steer the KL coefficient to its target."""
    if isinstance(learner.reference, CopyReference) and cfg.kl.reference == "ema":
        learner.reference.update(learner.policy, cfg.kl.decay)
    if cfg.kl.target is None or not math.isfinite(means.get("policy/kl", math.nan)):
        return {}
    return {"policy/kl_coef": learner.kl_coef.update(means["policy/kl"], cfg.learn.groups * cfg.learn.group_size)}


def limits_of(cfg: Config) -> MismatchLimits:
    """How far sampler and learner may be apart in this run."""
    return mismatch_limits(cfg.model.dtype, token=cfg.learn.max_logprob_gap, mean=cfg.learn.max_mean_logprob_gap)


def make_learner(cfg: Config, policy: ChatVLM) -> Learner:
    """The reference is the policy as it is now; sharded over processes where that is asked for."""
    reference = open_reference(policy, cfg.kl.reference)
    for part in (policy, reference.chat) if isinstance(reference, CopyReference) else (policy,):
        shard_policy(part, cfg.parallel.kind)
    optimizer = build_adamw({"policy": policy}, lr=cfg.learn.lr, eps=cfg.learn.adam_eps)
    kl_coef = AdaptiveKL(cfg.kl.coef, cfg.kl.target or 1.0, cfg.kl.horizon)
    return Learner(policy, reference, optimizer, NonFiniteGuard(), kl_coef)
