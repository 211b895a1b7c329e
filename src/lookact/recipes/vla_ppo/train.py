"""vla-ppo: behaviour cloning, then PPO, of a vision-language-action policy (arXiv:1707.06347, arXiv:2505.19789).

DINOv2 encodes frames, BERT the instruction; a transformer fuses both with the arm's state and its action history into a
Gaussian over actions. A clone of the scripted expert often succeeds; PPO in parallel environments improves it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor

from lookact.algorithms import control_ppo as control
from lookact.algorithms.behaviour_cloning import bc_loss, tabulate
from lookact.algorithms.control_groups import Groups, group_advantages
from lookact.algorithms.keypoint_pretraining import pretrain_keypoints
from lookact.algorithms.novelty import open_novelty
from lookact.algorithms.supervised_phase import supervised_phase
from lookact.data.packing import shuffled
from lookact.models.actor_critic import score
from lookact.models.vla.checkpoint import save_encoders
from lookact.models.vla.policy import VLA
from lookact.ops.losses import entropy_bonus, ppo_clip, value_loss
from lookact.ops.masked import whiten
from lookact.recipes.vla_ppo import task
from lookact.recipes.vla_ppo.config import Config
from lookact.recipes.vla_ppo.evaluate import attempts, evaluate, final_reports, validate
from lookact.recipes.vla_ppo.task import collect
from lookact.rollout.vector_rollout import Rollout
from lookact.seeding import derive
from lookact.training.distributed import (
    all_reduce_sum,
    mean_over_processes,
    shard_control_policy,
    sum_gradients,
    unshard,
)
from lookact.training.optim import WeightedSum, clip_and_step, set_learning_rate, weighted
from lookact.training.progress import timed
from lookact.training.run import Run
from lookact.training.settings import PPO
from lookact.training.weights import Weights

__all__ = ["collect", "evaluate", "main"]


def main(cfg: Config, run: Run) -> dict[str, Any]:
    policy = task.open_policy(cfg.model, cfg.env, seed=cfg.seed, bounds=task.action_bounds(cfg))

    # behaviour cloning, or a checkpoint of it
    if cfg.stage == "ppo" or not task.has_demonstrations(cfg):
        task.load_checkpoint(policy, cfg)
        before: dict[str, Any] = {"reports": final_reports(policy, cfg, run.folder, "before"), "seconds": {}}
    else:
        before = clone(policy, cfg, run)
    seconds = dict(before["seconds"])
    if cfg.stage == "bc":
        return {**before["reports"], "seconds": seconds}

    # PPO
    if task.freezes_encoders(cfg):
        policy.freeze_encoders()
    reinforce(policy, cfg, run)

    # final evaluation
    with timed(seconds, "final evaluation"):
        reports = {"before": before["reports"], "after": final_reports(policy, cfg, run.folder, "after")}
    return {**reports, "seconds": seconds}


def clone(policy: VLA, cfg: Config, run: Run) -> dict[str, Any]:
    """Vision pretraining, demonstrations, behaviour cloning, evaluation; each phase resumes where it stopped."""
    bc, folder, seconds = cfg.bc, run.folder / "warm_start", dict[str, float]()
    if (done := task.read_clone(policy, folder, freeze=bc.freeze_encoders)) is not None:
        return done

    # vision pretraining: keypoints of the object and the target that the instruction names
    with timed(seconds, "vision pretraining"):
        if bc.pretrain_images and cfg.env.is_tabletop:
            draw, how = task.pretraining(cfg)
            pretrain_keypoints(policy, draw, folder=folder / "vision_pretraining", config=run.config, **how)

    # demonstrations of the scripted expert, or a dataset
    with timed(seconds, "recording the expert"):
        demos = task.demonstrations(cfg, folder)

    # behaviour cloning: squared error of the Gaussian's mean
    with timed(seconds, "behaviour cloning"):
        if bc.freeze_encoders:
            policy.freeze_encoders()
        imitate(policy, [demos], cfg, run, folder / "bc")

    # hindsight experience replay: the clone's own episodes, failed ones relabelled with where they ended
    if bc.hindsight_episodes:
        with timed(seconds, "hindsight"):
            act = partial(attempts, policy, cfg, split="hindsight", episodes=bc.hindsight_episodes)
            own = task.hindsight_demonstrations(cfg, folder, act)
            imitate(policy, [demos, *own], cfg, run, folder / "bc_hindsight")

    # evaluate, checkpoint
    with timed(seconds, "evaluating the clone"):
        measured = {"reports": final_reports(policy, cfg, run.folder, "before"), "seconds": seconds}
    task.save_clone(policy, folder, measured)
    return measured


def imitate(policy: VLA, datasets: Sequence[Path], cfg: Config, run: Run, folder: Path) -> None:
    """Clone all demonstrations of these datasets, in a phase of its own."""
    bc, seed = cfg.bc, derive(cfg.seed, "cloning")
    demos = chain.from_iterable(task.open_demos(each, cfg.env, bc.rename) for each in datasets)
    table = tabulate(policy, demos, encode=bc.freeze_encoders, folder=folder.parent)
    policy.set_statistics(table.inputs.state.mean(dim=0), table.inputs.state.std(dim=0))
    examples = table.episodes if policy.spec.memory else len(table)
    how: dict[str, Any] = {"lr": bc.lr, "save_every": bc.save_every, "micro_batch_size": bc.micro_batch_size}
    supervised_phase(
        folder,
        run.config,
        {"model": policy},
        lambda: bc_loss(policy, table, noise=bc.action_noise, shuffle_prob=bc.history_shuffle_prob, seed=seed),
        [batch for epoch in range(bc.epochs) for batch in shuffled(examples, bc.batch_size, seed, epoch)],
        label="behaviour cloning",
        **how,
    )


def reinforce(policy: VLA, cfg: Config, run: Run) -> None:
    """PPO; `policy` ends as the last iteration left it."""
    learn, ppo, failed, samples = cfg.learn, cfg.ppo, control.FailedStarts(), control.SampleCount()
    envs = task.open_envs(cfg.env, learn, true_state=cfg.true_state)
    try:
        shard_control_policy(policy, cfg.parallel.kind, anchored=ppo.kl_coef > 0)
        learner = control.open_learner(policy, **task.learner_options(cfg))
        weights: dict[str, Weights] = {"model": policy, "readers": partial(save_encoders, policy)}
        state = learner.state() | {"failed_starts": failed, "samples": samples}
        if (novelty := open_novelty(policy, learn.curiosity, seed=cfg.seed)) is not None:
            state["novelty"] = novelty
        run.restore(weights=weights, state=state)
        for step in run.steps(learn.iterations, "PPO"):
            # schedules: standard deviation of actions, learning rates
            policy.set_progress((step - 1) / learn.iterations)
            metrics = set_learning_rate(learner.optimizer, step - 1, total=learn.iterations, schedule=learn.lr_schedule)

            # rollouts: fresh episodes in every environment, some of them where one lately failed
            began, restarts, seed = time.perf_counter(), envs.restarts, derive(cfg.seed, "update", step)
            plan = task.plan_iteration(cfg, step, failed)
            rollout = control.collect_experience(policy, envs, steps=learn.rollout_steps, seed=seed, plan_episode=plan)
            acting = control.rollout_metrics(rollout, envs.restarts - restarts)
            metrics |= samples.count(acting) | failed.update(rollout)
            if novelty is not None:
                rollout, told = novelty.added_to(rollout)
                metrics |= told

            # rewards, advantages, update: the critic alone at first, where there is one
            acted, shuffle = time.perf_counter(), derive(seed, "shuffle")
            ready = step > learn.critic_warmup or learn.advantage != "gae"
            compare: dict[str, Any] = {"groups": learn.groups, "bootstrap_timeouts": learn.bootstrap_timeouts}
            metrics |= ppo_update(learner, rollout, ppo, seed=shuffle, train_actor=ready, **compare)
            metrics |= {"time/rollout": acted - began, "time/learn": time.perf_counter() - acted}

            # evaluate, log, checkpoint
            if step % cfg.evaluation.every and step != learn.iterations:
                run.log(metrics, step, show="rollout/success_rate")
                continue
            found = validate(policy, cfg, run.folder, step)
            metrics |= found | samples.validated(found["eval/success_rate"])
            run.log(metrics, step, show="eval/success_rate")
            run.save(step, weights=weights, state=state, metrics=metrics, best=("eval/success_rate", "max"))
    finally:
        envs.close()
    unshard(policy)


def ppo_update(
    learner: control.Learner,
    rollout: Rollout,
    ppo: PPO,
    *,
    seed: int,
    train_actor: bool = True,
    groups: Groups | None = None,
    bootstrap_timeouts: bool = True,
) -> dict[str, float]:
    """Gradient steps from a rollout; without `train_actor` only the critic learns."""
    policy, optimizer = learner.policy, learner.optimizer

    # rewards, divided by the standard deviation of discounted returns
    rewards = rollout.rewards if learner.returns is None else control.scale_rewards(rollout, learner.returns, ppo.gamma)

    # advantages: GAE, whitened over the rollout (the values' targets come before), or a comparison of episodes
    if groups is None:
        how: dict[str, Any] = {"gamma": ppo.gamma, "lam": ppo.lam, "bootstrap_timeouts": bootstrap_timeouts}
        advantages = control.compute_advantages(rollout, rewards, **how)
        returns, compared = advantages + rollout.values, dict[str, Tensor]()
    else:
        advantages, counted, compared = group_advantages(rollout, rewards, groups)
        # the critic is left as it is
        rollout, returns, ppo = replace(rollout, mask=counted), rollout.values, replace(ppo, value_coef=0.0)
    if ppo.whiten and groups is None:
        advantages = whiten(advantages, rollout.mask, sum_everywhere=all_reduce_sum)
    batch = control.make_batch(rollout, advantages, returns, reference=learner.reference)

    # update: shuffled minibatches until the epochs, or the KL divergence from the acting policy, are through
    learned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    take_step = partial(clip_and_step, optimizer, learned, max_norm=ppo.clip_norm, guard=learner.guard)
    taken, stopped = list[dict[str, float]](), False
    for minibatch in control.minibatches(batch, epochs=ppo.epochs, size=ppo.minibatch, seed=seed):
        sums, micro_batches = WeightedSum(), minibatch.micro_batches(ppo.micro_batch_size)
        for micro, share in weighted(micro_batches, lambda micro: micro.counted, policy=policy):
            loss, parts = ppo_loss(policy, micro, ppo, train_actor=train_actor)
            (loss * share).backward()  # type: ignore[no-untyped-call]
            sums.add({"loss/total": loss, **parts}, share)
        stats = sums.over_processes()
        if ppo.max_kl is not None and stats.get("policy/approx_kl", 0.0) > ppo.max_kl:
            optimizer.zero_grad()
            stopped = True
            break
        sum_gradients(learned)
        taken.append(stats | take_step(loss=stats["loss/total"]))
    if learner.states is not None:
        control.update_state_statistics(rollout, learner.states, policy)
    metrics = control.critic_metrics(rollout, returns) | control.mean_metrics(taken) | mean_over_processes(compared)
    return metrics | {"optim/steps": len(taken), "policy/stopped": float(stopped)}


def ppo_loss(
    policy: Any, minibatch: control.StepBatch, ppo: PPO, *, train_actor: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """Value loss and, where the actor learns too, clipped surrogate, entropy bonus and KL to the reference."""
    output, mask = policy(minibatch.inputs), minibatch.mask
    scores = score(output, minibatch.inputs.actions)
    values, targets = output.values.unsqueeze(1), minibatch.returns
    value_error = value_loss(values, minibatch.old_values, targets, mask, kind=ppo.value_loss, clip=ppo.value_clip)
    parts = {"loss/value": value_error}
    if not train_actor:
        return value_error, parts
    old, advantages = minibatch.old_logprobs, minibatch.advantages
    policy_loss, ratios = ppo_clip(scores.logprobs, old, advantages, mask, clip=ppo.clip, clip_high=ppo.clip_high)
    entropy, kl = entropy_bonus(scores.entropy, mask), control.reference_kl(output, minibatch)
    loss = policy_loss + ppo.value_coef * value_error - ppo.entropy_coef * entropy + ppo.kl_coef * kl
    parts |= {"loss/policy": policy_loss, "policy/entropy": entropy, "policy/kl": kl}
    parts |= {f"policy/{name}": ratios[name] for name in ("clip_fraction", "approx_kl")}
    return loss, parts
