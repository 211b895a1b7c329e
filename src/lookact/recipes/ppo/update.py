"""The parts of vqa-ppo's loop that take more than a line: rewards, credit, and the objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from lookact.algorithms.episode_tensors import lay_out, make_chunks
from lookact.algorithms.token_ppo import (
    Lesson,
    apply_kl_penalty,
    credit,
    critic_metrics,
    episode_tensors,
    mean_over_processes,
    mismatch_weights,
    value_loss,
    write_lessons,
)
from lookact.algorithms.vlm import NoReference, Reference
from lookact.batch import TokenInputs
from lookact.data.segments import cut
from lookact.models.vlm.policy import ChatVLM
from lookact.ops.kl import k3, kl_loss
from lookact.ops.masked import Metrics
from lookact.ops.policy_loss import entropy_bonus, ppo_clip
from lookact.recipes.ppo.config import Config
from lookact.rewards.answer import answer_score, format_fault, turn_taken
from lookact.rewards.shaping import WeightedParts, progress
from lookact.seeding import numpy_rng
from lookact.training.distributed import all_reduce_sum, sum_gradients
from lookact.training.optim import NonFiniteGuard, accumulate, build_adamw, clip_and_step, set_learning_rate
from lookact.types import Episode


def reward_parts(cfg: Config) -> WeightedParts:
    """The answer's score, the replies' form, the turns taken, and what came into view."""
    rewards = cfg.rewards
    return WeightedParts(
        {
            "answer": (rewards.answer, answer_score),
            "format": (rewards.format, format_fault),
            "turn": (rewards.turn, turn_taken),
            "progress": (
                rewards.progress,
                progress("seen_share", gamma=cfg.credit.gamma_turn, kept=rewards.progress_kept),
            ),
        }
    )


def prepare(
    episodes: Sequence[Episode],
    chat: ChatVLM,
    critic: ChatVLM,
    reference: Reference,
    cfg: Config,
    step: int,
    coef: float,
) -> tuple[list[list[Lesson]], dict[str, float]]:
    """A step's episodes as minibatches of lessons: old scores, credit, weights. Failed episodes are left out."""
    whole = [cut(episode, units=cfg.learn.units) for episode in episodes if episode.error is None]
    segments, layout = [segment for parts in whole for segment in parts], lay_out(whole)
    # all processes must take the same number of gradient steps
    parts = max(1, round(all_reduce_sum(len(segments)) / cfg.learn.minibatch))
    minibatches = make_chunks(
        segments,
        numpy_rng(cfg.seed, "minibatches", step).permutation(len(segments)).tolist(),
        chat.encode_images,
        parts=parts,
        token_budget=cfg.learn.token_budget,
        device=chat.device,
    )
    chunks = [chunk for minibatch in minibatches for chunk in minibatch]
    scoring = {model: partial(model.evaluate, **filters(cfg)) for model in (chat, critic)}
    known = None if isinstance(reference, NoReference) else partial(reference.evaluate, **filters(cfg))
    tensors = episode_tensors(chunks, layout, scoring[chat], scoring[critic], known)
    tensors, metrics = apply_kl_penalty(tensors, coef if cfg.kl.use == "reward" else 0.0)
    weights, gaps = mismatch_weights(tensors, cap=cfg.learn.mismatch_cap, parity=cfg.learn.parity)
    c = cfg.credit
    advantages = credit(
        tensors, method=c.method, gamma=c.gamma, lam=c.lam, gamma_turn=c.gamma_turn, lam_turn=c.lam_turn
    )
    metrics |= gaps | critic_metrics(tensors, advantages)
    lessons = iter(write_lessons(chunks, layout, tensors, advantages, weights, whitened=c.whiten))
    return [[next(lessons) for _ in minibatch] for minibatch in minibatches], mean_over_processes(metrics)


def objective(
    chat: ChatVLM, critic: ChatVLM, coef: float, cfg: Config, *, acting: bool
) -> Callable[[Lesson], tuple[Tensor, Metrics]]:
    """The critic's loss and, where the actor learns too, the clipped surrogate, entropy and distance to its start."""

    def loss(lesson: Lesson) -> tuple[Tensor, Metrics]:
        inputs, mask = lesson.batch.inputs, lesson.batch.mask
        assert isinstance(inputs, TokenInputs)
        kind: dict[str, Any] = {"kind": cfg.critic.loss, "clip": cfg.critic.clip}
        if not acting:
            values = critic.evaluate(inputs, **filters(cfg)).values
            total, _ = value_loss(values, lesson.old_values, lesson.returns, mask, **kind)
            return total, {"loss/value": total.detach()}
        scores = chat.evaluate(inputs, **filters(cfg))
        values = scores.values if critic is chat else critic.evaluate(inputs, **filters(cfg)).values
        value, _ = value_loss(values, lesson.old_values, lesson.returns, mask, **kind)
        surrogate, parts = ppo_clip(
            scores.logprobs,
            lesson.old_logprobs,
            lesson.batch.advantages,
            mask,
            clip=cfg.learn.clip,
            clip_high=cfg.learn.clip_high,
            dual_clip=cfg.learn.dual_clip,
            weights=lesson.weights,
        )
        entropy = entropy_bonus(scores.entropy, mask)
        total = surrogate + cfg.critic.coef * value - cfg.learn.entropy * entropy
        metrics = {"loss/policy": surrogate, "loss/value": value, "policy/entropy": entropy}
        metrics |= {f"policy/{name}": part for name, part in parts.items()}
        if cfg.kl.use == "loss" and lesson.reference_logprobs is not None:
            distance, _ = kl_loss(scores.logprobs, lesson.reference_logprobs, mask, estimator=k3)
            total = total + coef * distance
            metrics["loss/kl"] = distance
        return total, {name: part.detach() for name, part in metrics.items()}

    return loss


def open_learners(chat: ChatVLM, critic: ChatVLM, cfg: Config) -> dict[str, Any]:
    """The actor's and the critic's optimisers, each with its own rate and its own watch over broken numbers."""
    head = critic.value_head if critic is chat else critic
    assert head is not None
    return {
        "policy": build_adamw({"policy": chat.model}, lr=cfg.learn.lr, eps=cfg.learn.adam_eps),
        "critic": build_adamw({"critic": head}, lr=cfg.critic.lr),
        "policy_guard": NonFiniteGuard(),
        "critic_guard": NonFiniteGuard(),
    }


def set_rates(learners: dict[str, Any], cfg: Config, step: int) -> dict[str, float]:
    """The learning rates of a step; the actor's warm-up begins where the critic's own time ends."""
    learn, alone = cfg.learn, cfg.critic.warmup
    rate = set_learning_rate(
        learners["policy"],
        max(0, step - alone),
        warmup=learn.warmup,
        total=max(1, learn.updates - alone),
        schedule=learn.schedule,
    )
    own = set_learning_rate(learners["critic"], step, total=learn.updates, schedule=learn.schedule)
    return rate | {"optim/critic_lr": own["optim/lr"]}


def take_steps(
    minibatches: Sequence[Sequence[Lesson]],
    loss_fn: Callable[[Lesson], tuple[Tensor, Metrics]],
    learners: dict[str, Any],
    chat: ChatVLM,
    cfg: Config,
    step: int,
    *,
    acting: bool,
) -> dict[str, float]:
    """Epochs over the minibatches, each in an order of its own, until the policy has gone too far; mean metrics."""
    order = [
        minibatches[index]
        for epoch in range(cfg.learn.epochs)
        for index in numpy_rng(cfg.seed, "order", step, epoch).permutation(len(minibatches))
    ]
    taken: list[dict[str, float]] = []
    for lessons in order:
        metrics = take_step(lessons, loss_fn, learners, chat, cfg, acting=acting)
        if metrics is None:
            break
        taken.append(metrics)
    names = dict.fromkeys(name for metrics in taken for name in metrics)
    means = {name: sum(metrics[name] for metrics in taken) / len(taken) for name in names}
    return means | {"optim/steps": len(taken), "policy/stopped": float(len(taken) < len(order))}


def take_step(
    lessons: Sequence[Lesson],
    loss_fn: Callable[[Lesson], tuple[Tensor, Metrics]],
    learners: dict[str, Any],
    chat: ChatVLM,
    cfg: Config,
    *,
    acting: bool,
) -> dict[str, float] | None:
    """One gradient step of the critic and, where it acts, of the policy; None, and no step, once it went too far."""
    loss, metrics = accumulate(lessons, loss_fn, lambda lesson: lesson.batch.mask.sum())
    limit = cfg.learn.max_kl
    far = limit is not None and metrics.get("policy/approx_kl", 0.0) > limit
    # in the critic's own time a shared backbone is the actor's and must not move
    if far or not acting:
        learners["policy"].zero_grad()
    if far:
        learners["critic"].zero_grad()
        return None
    heads = [parameter for group in learners["critic"].param_groups for parameter in group["params"]]
    sum_gradients([*(chat.model.parameters() if acting else ()), *heads])
    clip = {"max_norm": cfg.learn.clip_norm, "loss": loss}
    own = clip_and_step(learners["critic"], heads, guard=learners["critic_guard"], **clip)
    metrics |= {"loss/total": loss, "optim/critic_grad_norm": own["optim/grad_norm"]}
    if acting:
        metrics |= clip_and_step(learners["policy"], chat.model.parameters(), guard=learners["policy_guard"], **clip)
    return metrics


def filters(cfg: Config) -> dict[str, Any]:
    """Sampling's temperature and filters: scores must be of the distribution that was sampled from."""
    return {"temperature": cfg.sampling.temperature, "top_k": cfg.sampling.top_k, "top_p": cfg.sampling.top_p}
