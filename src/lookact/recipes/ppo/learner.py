"""Actor, critic and reference of PPO, with their optimizers and learning rates."""

from __future__ import annotations

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
from lookact.recipes.ppo.config import Config
from lookact.rewards.functions import WeightedParts, answer_score, format_fault, load_rewards, progress, turn_taken
from lookact.tasks.settings import is_spatial_vqa
from lookact.training.distributed import shard_policy
from lookact.training.optim import NonFiniteGuard, build_adamw


@dataclass(frozen=True)
class Learner:
    """Actor and critic, each with its optimizer, and what a checkpoint keeps of them."""

    policy: ChatVLM
    critic: ChatVLM
    """The policy itself where the backbone is shared."""
    reference: Reference | None
    optimizer: Optimizer
    critic_optimizer: Optimizer
    guard: NonFiniteGuard
    critic_guard: NonFiniteGuard
    kl_coef: AdaptiveKL
    filters: Mapping[str, Any]
    """What scores share with sampling."""
    limits: MismatchLimits
    """How far sampler and learner may be apart."""
    importance: Mapping[str, Any]
    """How their ratio is weighed."""

    def saved(self) -> dict[str, Any]:
        """What `run.save` and `run.restore` take."""
        own = {} if self.critic is self.policy else {"critic": self.critic.model}
        readers = partial(save_processor, self.policy)
        weights = {"model": self.policy.model, "readers": readers, **own, "value_head": self.critic.value_head}
        state = {
            "policy": self.optimizer,
            "critic": self.critic_optimizer,
            "policy_guard": self.guard,
            "critic_guard": self.critic_guard,
            "kl": self.kl_coef,
            "reference": self.reference or NoReference(),
        }
        return {"weights": weights, "state": state}


def make_learner(cfg: Config, policy: ChatVLM, critic: ChatVLM) -> Learner:
    """The reference is the policy as it is now; sharded over processes where that is asked for."""
    head = critic.value_head if critic is policy else critic
    assert head is not None
    reference = open_reference(policy, cfg.kl.reference)
    for part in (policy, reference.chat) if isinstance(reference, CopyReference) else (policy,):
        shard_policy(part, cfg.parallel.kind)
    return Learner(
        policy,
        critic,
        reference=reference,
        optimizer=build_adamw({"policy": policy.model}, lr=cfg.learn.lr, eps=cfg.learn.adam_eps),
        critic_optimizer=build_adamw({"critic": head}, lr=cfg.critic.lr),
        guard=NonFiniteGuard(),
        critic_guard=NonFiniteGuard(),
        kl_coef=AdaptiveKL(cfg.kl.coef, cfg.kl.target or 1.0, cfg.kl.horizon),
        filters=cfg.sampling.filters(),
        limits=limits_of(cfg),
        importance=cfg.importance_sampling.options(),
    )


def limits_of(cfg: Config) -> MismatchLimits:
    """How far sampler and learner may be apart."""
    return mismatch_limits(cfg.model.dtype, token=cfg.learn.max_logprob_gap, mean=cfg.learn.max_mean_logprob_gap)


def make_rewards(cfg: Config) -> WeightedParts:
    """Of spatial VQA the answer's score, the format, the turns taken and what came into view; else the env's own."""
    own = load_rewards(cfg.reward_functions).parts
    if not is_spatial_vqa(cfg.env):
        return WeightedParts(own)
    r = cfg.rewards
    seen = progress("seen_share", gamma=cfg.credit.gamma_turn, kept=r.progress_kept)
    return WeightedParts(
        {
            "answer": (r.answer, answer_score),
            "format": (r.format, format_fault),
            "turn": (r.turn, turn_taken),
            "progress": (r.progress, seen),
        }
        | {name: part for name, part in own.items() if name != "env"}
    )
