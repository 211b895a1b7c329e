"""world-duel: a world model and an explorer trained in three phases, after F1 (arXiv:2509.06951).

Phase teacher: episodes of random actions; a VQ tokenizer is fitted on their frames, then the world model predicts the
next wrist frame's tokens from frames, actions, state and GRU memory (truncated BPTT). Phase student: the world model is
frozen, and an explorer learns by PPO on its memory divergence and uncertainty. Phase adversarial: both in turn.
Phase task: the same model, trained on an expert's episodes, acts by its foresight; PPO by the task's own reward.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from lookact.algorithms import control_ppo
from lookact.algorithms import world_model as fitting
from lookact.algorithms.exploration import noise_share, reward_metrics
from lookact.data.sequences import TokenSequences, concat
from lookact.models.actor_critic import score
from lookact.models.world_model.model import WorldModel, mean_logits
from lookact.ops.losses import entropy_bonus, ppo_clip, token_accuracy, value_loss
from lookact.ops.masked import Metrics, whiten
from lookact.recipes.world_duel import data as sources
from lookact.recipes.world_duel.config import Config, due_after, phase_at, planned
from lookact.recipes.world_duel.data import Data, TrainState
from lookact.recipes.world_duel.evaluate import EpisodeMetrics, collect, evaluate, read_reports, report_on
from lookact.recipes.world_duel.f1.environments import plan_episodes
from lookact.recipes.world_duel.preflight import check_phase
from lookact.rollout.vector_rollout import Rollout
from lookact.seeding import derive, numpy_rng, torch_rng
from lookact.training.distributed import all_reduce_sum, gather, sum_by_name, sum_gradients
from lookact.training.optim import clip_and_step, set_learning_rate
from lookact.training.run import Run
from lookact.training.settings import PPO

__all__ = ["collect", "evaluate", "main"]
SHOWN = {"student": "reward/total", "reinforce": "rollout/success_rate"}  # beside the progress bar


def main(cfg: Config, run: Run) -> dict[str, Any]:
    check_phase(cfg)
    state = sources.open_state(cfg, run.resumed_from)
    weights, saved = state.weights(cfg.model, with_explorer=cfg.phase != "teacher"), state.saved()
    data = sources.load_data(state.world_model, cfg, run)
    run.restore(weights=weights, state=saved)
    lines, report = EpisodeMetrics(run.folder, run.done), dict[str, Any]()

    for step in run.steps(sum(planned(cfg).values()), cfg.phase):
        (phase, number), began = phase_at(cfg, step), time.perf_counter()
        if number == 1:
            sources.begin_phase(state, data, cfg, phase)
        if phase in ("teacher", "clone"):
            metrics = teacher_step(state, data, cfg, number)
        elif phase == "student":
            metrics, _ = student_step(state, cfg, number)
        elif phase == "reinforce":
            metrics = task_step(state, cfg, number)
        else:
            metrics = adversarial_step(state, data, cfg, number)
        learned = time.perf_counter()
        metrics |= {"time/learn": learned - began, "time/cpu": time.process_time()}

        # evaluate, log, checkpoint
        due = due_after(cfg, step)
        if due.evaluation or due.example:
            found, numbers = report_on(state, data, cfg, run, phase, step)
            report, metrics = found or report, metrics | numbers | {"time/evaluate": time.perf_counter() - learned}
        lines.add(step, phase, metrics)
        run.log(metrics, step, show=SHOWN.get(phase, "world/token_accuracy"))
        if due.checkpoint:
            run.save(step, weights=weights, state=saved, metrics=metrics, keep=cfg.evaluation.keep)
    state.envs.close()
    return read_reports(run) or {cfg.phase: report}


def teacher_step(state: TrainState, data: Data, cfg: Config, number: int) -> dict[str, float]:
    """Phase teacher: the world model learns from a batch of random episodes; in phase task, of the expert's."""
    assert data.train is not None
    seed, teacher = derive(cfg.seed, "teacher", number), cfg.fitting
    schedule: dict[str, Any] = {"warmup": teacher.warmup, "total": teacher.iterations, "schedule": "cosine"}
    metrics = set_learning_rate(state.world_model_optimizer, number, floor=0.05, **schedule)
    batch = fitting.sample_batch(state.world_model, [(data.train, teacher.batch_size)], seed, cfg.head_camera_prob)
    return metrics | fit_world_model(state, *batch, cfg, seed)


def fit_world_model(
    state: TrainState, batch: fitting.EncodedSequences, folds: Tensor, cfg: Config, seed: int
) -> dict[str, float]:
    """Truncated BPTT, one gradient step a window: in order with the memory carried on, or at random; mean metrics."""
    world_model, optimizer, length = state.world_model, state.world_model_optimizer, cfg.fitting.bptt_length
    guard, rng, generator = state.world_model_guard, numpy_rng(seed, "windows"), torch_rng(seed, "flow")
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    carry, taken = world_model.memory.initial(len(batch.frames)), []
    for index in range(-(-batch.steps // length)):
        start = index * length
        if not cfg.fitting.sequential_training:
            start = int(rng.integers(0, max(1, batch.steps - length + 1)))
            carry = fitting.memory_state_at(world_model, batch, start)
        times = torch.arange(start, min(start + length, batch.steps))
        how: dict[str, Any] = {"stride": cfg.model.stride, "action_loss_coef": cfg.fitting.action_loss_coef}
        loss, stats, carry = world_model_loss(world_model, batch, times, carry, folds, generator=generator, **how)
        # update: the mean over the steps of all processes
        count = float(batch.mask[:, times].sum())
        weight = count / max(1.0, all_reduce_sum(count))
        if weight:
            (loss * weight).backward()  # type: ignore[no-untyped-call]
        metrics = sum_by_name({name: float(value) * weight for name, value in stats.items()})
        sum_gradients(parameters)
        mean_loss = all_reduce_sum(float(loss.detach()) * weight)
        metrics |= clip_and_step(optimizer, parameters, max_norm=1.0, guard=guard, loss=mean_loss)
        taken.append(metrics)
    if state.older is not None:
        fitting.follow(state.older, world_model, decay=cfg.rewards.progress_decay)
    return fitting.average(taken)


def world_model_loss(
    world_model: WorldModel,
    batch: fitting.EncodedSequences,
    times: Tensor,
    carry: Tensor,
    folds: Tensor,
    *,
    stride: int,
    action_loss_coef: float = 0.0,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Metrics, Tensor]:
    """Loss of a window's steps, metrics, and the memory state after them, detached."""
    memory, carry = fitting.update_memory(world_model, batch, times, carry)
    inputs, actions = fitting.inputs_at(world_model, batch, times, memory, stride=stride)
    # prediction of the next frames: cross-entropy of their VQ tokens, teacher-forced from coarse to fine
    target, mask = fitting.next_frames(batch, times, world_model.spec.predicted_frames)
    seen = fitting.draw_action_seen(world_model, len(target), generator)
    logits = world_model.predict(inputs, actions, target, seen)
    loss = fitting.next_token_loss(logits, target, mask, folds.repeat_interleave(len(times)))
    accuracy = token_accuracy(mean_logits(logits), target, mask)
    metrics = {"loss/world_model": loss.detach(), "world/token_accuracy": accuracy}
    # action head: behaviour cloning of the actions taken
    if action_loss_coef:
        assert generator is not None
        cloning = fitting.action_loss(world_model, batch, inputs, times, generator)
        loss = loss + action_loss_coef * cloning
        metrics["loss/action"] = cloning.detach()
    return loss, metrics, carry.detach()


def student_step(
    state: TrainState, cfg: Config, number: int, split: str = "student"
) -> tuple[dict[str, float], TokenSequences]:
    """Phase student: PPO of the explorer on intrinsic rewards; the metrics, and the episodes it explored."""
    ppo, rewards = cfg.student.ppo, cfg.rewards
    # rollouts: one episode in every environment
    rollout, sequences = sources.explore(state.explorer, state.envs, cfg, split, number)
    # intrinsic rewards, minus what random actions earn: the critic starts at zero
    weights = rewards.memory_weight, rewards.uncertainty_weight, rewards.novelty_weight
    terms = state.reward_scale.weighted(sources.reward_terms(state, sequences, cfg), weights)
    mask = sequences.mask.to(terms.novelty.device)
    total = (terms.divergence + terms.uncertainty + terms.novelty).masked_fill(~mask, 0.0)
    gain = (total - state.reward_scale.random_reward(weights)).masked_fill(~mask, 0.0).T
    # advantages, update
    advantages = control_ppo.compute_advantages(rollout, gain, gamma=ppo.gamma, lam=ppo.lam)
    seed = derive(cfg.seed, "student", derive(cfg.seed, split, number))
    metrics = ppo_update(state, rollout, advantages, advantages + rollout.values, ppo, seed=seed)
    metrics |= reward_metrics(terms, total, mask, state.explorer.model.action_head.log_std)
    return metrics | (noise_share(total, sequences) if cfg.env.name == "noisy_tv" else {}), sequences


def task_step(state: TrainState, cfg: Config, number: int) -> dict[str, float]:
    """Phase task after cloning: PPO by the task's own reward, on real steps and on imagined ones."""
    seed, task, ppo = derive(cfg.seed, "task", number), cfg.task_phase, cfg.task_phase.ppo
    plan, steps = plan_episodes(seed, "task", 0, 1, together=True), cfg.env.steps_per_episode
    rollout = control_ppo.collect_experience(state.explorer, state.envs, steps=steps, seed=seed, plan_episode=plan)
    advantages = control_ppo.compute_advantages(rollout, rollout.rewards, gamma=ppo.gamma, lam=ppo.lam)
    warm, dream, imagination = number > task.critic_warmup, task.imagination, state.imagination
    how: dict[str, Any] = {"seed": seed, "actor": warm and (imagination is None or dream.real_steps)}
    metrics = control_ppo.rollout_metrics(rollout, 0)
    metrics |= ppo_update(state, rollout, advantages, advantages + rollout.values, ppo, **how)
    if imagination is None:
        return metrics
    # imagined rollouts from these steps; their returns are λ-returns
    metrics |= imagination.learn(rollout, steps=dream.gradient_steps, seed=seed)
    if warm:
        how = {"horizon": dream.horizon, "starts": dream.starts, "gamma": ppo.gamma, "lam": ppo.lam}
        imagined, returns = imagination.rollout(state.explorer, rollout, seed=seed, **how)
        found = ppo_update(state, imagined, returns - imagined.values, returns, ppo, seed=derive(seed, "imagined"))
        metrics |= {f"world/imagined_{name[7:]}": value for name, value in found.items() if name[:7] == "policy/"}
    return metrics


def ppo_update(
    state: TrainState, rollout: Rollout, advantages: Tensor, returns: Tensor, ppo: PPO, *, seed: int, actor: bool = True
) -> dict[str, float]:
    """PPO of the policy, or its critic alone, on a real or imagined rollout; advantages and returns are (t, rows)."""
    metrics = control_ppo.critic_metrics(rollout, returns)
    if ppo.whiten:
        advantages = whiten(advantages, rollout.mask, sum_everywhere=all_reduce_sum)
    batch = control_ppo.make_batch(rollout, advantages, returns, reference=state.reference)
    # update: clipped surrogate, value loss, entropy bonus, KL to the policy that the phase began with
    explorer, optimizer, guard = state.explorer, state.explorer_optimizer, state.explorer_guard
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    taken, stopped = list[dict[str, float]](), False

    def loss_fn(minibatch: control_ppo.StepBatch) -> tuple[Tensor, dict[str, Tensor]]:
        output, mask, returns = explorer(minibatch.inputs), minibatch.mask, minibatch.returns
        scores, kl = score(output, minibatch.inputs.actions), control_ppo.reference_kl(output, minibatch)
        assert scores.values is not None
        value = value_loss(scores.values, minibatch.old_values, returns, mask, kind=ppo.value_loss, clip=ppo.value_clip)
        old = minibatch.old_logprobs, minibatch.advantages
        surrogate, stats = ppo_clip(scores.logprobs, *old, mask, clip=ppo.clip, clip_high=ppo.clip_high)
        entropy = entropy_bonus(scores.entropy, mask)
        own = surrogate - ppo.entropy_coef * entropy + ppo.kl_coef * kl
        loss = ppo.value_coef * value + (own if actor else 0.0)
        parts = {"loss/policy": surrogate, "loss/value": value, "policy/entropy": entropy, "policy/kl": kl}
        return loss, parts | {f"policy/{name}": stats[name] for name in ("clip_fraction", "approx_kl")}

    for minibatch in control_ppo.minibatches(batch, epochs=ppo.epochs, size=ppo.minibatch, seed=seed):
        total, found = control_ppo.accumulate_minibatch(explorer, minibatch, loss_fn, ppo.micro_batch_size)
        if ppo.max_kl is not None and found["policy/approx_kl"] > ppo.max_kl:
            optimizer.zero_grad()
            stopped = True
            break
        sum_gradients(parameters)
        taken.append(found | clip_and_step(optimizer, parameters, max_norm=ppo.clip_norm, guard=guard, loss=total))
    return metrics | control_ppo.mean_metrics(taken) | {"optim/steps": len(taken), "policy/stopped": float(stopped)}


def adversarial_step(state: TrainState, data: Data, cfg: Config, number: int) -> dict[str, float]:
    """Phase adversarial: the explorer learns where the world model predicts badly, then the world model from it."""
    assert data.adversarial is not None
    adversarial = cfg.adversarial
    if adversarial.behaviour_policy == "explorer":
        metrics, found = student_step(state, cfg, number, "duel")
    else:
        metrics, found = {}, sources.scripted_episodes(state, cfg, number)
    state.replay.add(concat(gather(found)))
    schedule: dict[str, Any] = {"total": adversarial.iterations, "schedule": "cosine", "peak": adversarial.lr}
    set_learning_rate(state.world_model_optimizer, number, floor=0.05, **schedule)
    random = data.adversarial, adversarial.random_batch_size
    explored = state.replay.all(), adversarial.explorer_batch_size
    updates = []
    for index in range(adversarial.world_model_updates):
        seed = derive(cfg.seed, "duel", number, index)
        batch = fitting.sample_batch(state.world_model, [random, explored], seed)
        updates.append(fit_world_model(state, *batch, cfg, seed))
    metrics |= fitting.average(updates)
    errors = sources.duel_errors(state, data, stride=cfg.model.stride)
    return metrics | {f"duel/{name}": float(values.mean()) for name, values in errors.items()}
