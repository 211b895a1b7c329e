"""The explorer's side of world-duel: it acts, is paid for what the world model could not foresee, and learns by PPO."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lookact.algorithms.control_ppo import (
    StepBatch,
    compute_advantages,
    critic_metrics,
    make_batch,
    mean_metrics,
    minibatches,
)
from lookact.algorithms.token_ppo import mean_over_processes
from lookact.data.sequences import Sequences
from lookact.envs.testbeds.noisy_tv import noise_seen
from lookact.models.actor_critic import score
from lookact.models.world_model.explorer import Explorer
from lookact.models.world_model.model import WorldModel
from lookact.ops.masked import whiten
from lookact.ops.policy_loss import entropy_bonus, ppo_clip
from lookact.ops.value_loss import clipped_value_loss, huber_value_loss
from lookact.recipes.world_duel.config import Config
from lookact.recipes.world_duel.data import TOOL, plan_episodes
from lookact.recipes.world_duel.update import Film, remember_all, scenes, to_film
from lookact.rewards.intrinsic import Kind, Parts, Units, curiosity, uncertainty_of
from lookact.rollout.vector_rollout import Rollout, VectorEnvLike, collect_rollout
from lookact.seeding import derive, torch_rng
from lookact.training.distributed import all_reduce_sum, rank, sum_by_name, sum_gradients, world_size
from lookact.training.optim import NonFiniteGuard, clip_and_step
from lookact.training.settings import PPO

CHUNK = 8
"""Steps of all rows that are looked through at once."""


@dataclass(frozen=True)
class Explored:
    """What one episode of every row came to."""

    rollout: Rollout
    sequences: Sequences


def explore(
    explorer: Explorer, worlds: VectorEnvLike, cfg: Config, split: str, number: int, *, greedy: bool = False
) -> Explored:
    """The `number`-th episode of a split on every row of this process; one step more is taken than counts."""
    rows, steps = worlds.num_envs * world_size(), cfg.world.steps_per_episode + 1
    shape = (steps, rows, cfg.world.action_size)
    noise = torch.randn(shape, generator=torch_rng(cfg.seed, split, "noise", number))[:, rank() :: world_size()]
    noise = noise.to(explorer.device) * (0.0 if greedy else 1.0)
    plan = plan_episodes(cfg.seed, split, number, cfg.world, together=True)
    rollout = collect_rollout(explorer, worlds, noise=noise, plan_episode=plan)
    return Explored(rollout, to_sequences(rollout))


def to_sequences(rollout: Rollout) -> Sequences:
    """A rollout's steps but the last, whose frame is the one that the step before it led to."""
    inputs = rollout.inputs
    wrist = inputs.images["wrist"].transpose(0, 1).to("cpu", torch.int16)
    # what follows a breakdown is another episode
    counts = rollout.mask[:-1].T.cpu().long().cummin(dim=1).values.bool()
    return Sequences(
        wrist=wrist,
        head=torch.zeros_like(wrist),
        head_seen=torch.zeros(len(wrist), dtype=torch.bool),
        state=inputs.state.transpose(0, 1).cpu(),
        actions=inputs.actions[:-1].clamp(-1.0, 1.0).transpose(0, 1).cpu(),
        text_ids=inputs.text_ids[0].cpu(),
        counts=counts,
    )


@torch.no_grad()
def look_through(world: WorldModel, film: Film, remembered: Tensor, *, stride: int) -> Tensor:
    """Logits (members, b, t, tokens, codes) of every next frame, its coarser scales known."""
    found = []
    for times in torch.split(torch.arange(film.steps), CHUNK):
        scene, action = scenes(world, film, times, remembered[:, times], stride=stride)
        logits = world.foresee(scene, action, film.ids[:, times + 1].flatten(0, 1))
        found.append(logits.reshape(len(logits), len(film.frames), len(times), *logits.shape[2:]))
    return torch.cat(found, dim=2)


@torch.no_grad()
def curiosity_of(world: WorldModel, sequences: Sequences, *, stride: int, kind: Kind) -> Parts:
    """What each step earns, (b, t) each, by the wrist camera alone."""
    film = to_film(world, sequences, torch.zeros(len(sequences), dtype=torch.bool))
    remembered = remember_all(world, film)
    logits = look_through(world, film, remembered, stride=stride)
    before, after = (x.flatten(0, 1) for x in (remembered[:, :-1], remembered[:, 1:]))
    flat = logits.flatten(1, 2)
    foreseen = world.vq.expected(flat.softmax(dim=-1).flatten(0, 1)).reshape(*flat.shape[:2], -1)
    places = sequences.state[:, 1:, TOOL].flatten(0, 1).to(world.device)
    unsure = uncertainty_of(flat, foreseen, film.ids[:, 1:].flatten(0, 1), kind=kind)
    parts = curiosity(before, after, places, unsure)
    shape = (len(sequences), film.steps)
    return Parts(*(part.reshape(shape) for part in (parts.divergence, parts.uncertainty, parts.novelty)))


def learn_to_explore(
    explorer: Explorer,
    world: WorldModel,
    explored: Explored,
    units: Units,
    learner: dict[str, Any],
    cfg: Config,
    step: int,
) -> dict[str, float]:
    """Pay an episode of every row with the world model of now, and take PPO's steps."""
    sequences, rewards = explored.sequences, cfg.rewards
    parts = curiosity_of(world, sequences, stride=cfg.model.stride, kind=rewards.uncertainty)
    weights = (rewards.memory_weight, rewards.uncertainty_weight, rewards.novelty_weight)
    moved, unsure, alone = units.pay(parts, divergence=weights[0], uncertainty=weights[1], novelty=weights[2])
    counts = sequences.counts.to(moved.device)
    paid = (moved + unsure + alone).masked_fill(~counts, 0.0)
    # what random actions earn anyway is no news to a critic that starts at zero
    gain = (paid - sum(weights)).masked_fill(~counts, 0.0)
    # the step beyond the last is there for its frame: it is not learned from
    last = torch.zeros(1, len(paid), device=paid.device)
    mask = torch.cat([counts.T, last.bool()])
    rollout = replace(explored.rollout, mask=mask)
    ppo = cfg.student.ppo
    advantages = compute_advantages(rollout, torch.cat([gain.T, last]), gamma=ppo.gamma, lam=ppo.lam)
    returns = advantages + rollout.values
    metrics = critic_metrics(rollout, returns)
    if ppo.whiten:
        advantages = whiten(advantages, mask, sum_everywhere=all_reduce_sum)
    batch = make_batch(rollout, advantages, returns)
    metrics |= ppo_steps(explorer, batch, learner, ppo, derive(cfg.seed, "student", step))
    told = {"reward/memory": moved[counts].mean(), "reward/uncertainty": unsure[counts].mean()}
    told |= {
        "reward/novelty": alone[counts].mean(),
        "reward/total": paid[counts].mean(),
        "policy/std": explorer.world.actions.log_std.exp().mean(),
    }
    return (
        metrics
        | mean_over_processes({name: value.detach() for name, value in told.items()})
        | noise_share(paid, sequences, cfg)
    )


def ppo_steps(explorer: Explorer, batch: StepBatch, learner: dict[str, Any], ppo: PPO, seed: int) -> dict[str, float]:
    """Gradient steps on minibatches: clipped surrogate, value loss, entropy bonus; mean metrics."""
    optimizer, guard = learner["optimizer"], learner["guard"]
    assert isinstance(guard, NonFiniteGuard)
    learned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    taken: list[dict[str, float]] = []
    stopped = False
    for minibatch in minibatches(batch, epochs=ppo.epochs, size=ppo.minibatch, seed=seed):
        scores, mask = score(explorer(minibatch.inputs), minibatch.inputs.actions), minibatch.mask
        assert scores.values is not None
        if ppo.value_loss == "clipped":
            value, _ = clipped_value_loss(
                scores.values, minibatch.old_values, minibatch.returns, mask, clip=ppo.value_clip
            )
        else:
            value, _ = huber_value_loss(scores.values, minibatch.returns, mask, delta=ppo.value_clip)
        olds = minibatch.old_logprobs, minibatch.advantages
        surrogate, clipped = ppo_clip(scores.logprobs, *olds, mask, clip=ppo.clip, clip_high=ppo.clip_high)
        entropy = entropy_bonus(scores.entropy, mask)
        loss = surrogate + ppo.value_coef * value - ppo.entropy_coef * entropy
        parts = {"loss": loss, "loss/policy": surrogate, "loss/value": value, "policy/entropy": entropy}
        parts |= {f"policy/{name}": clipped[name] for name in ("clip_fraction", "approx_kl")}
        (loss * minibatch.weight).backward()  # type: ignore[no-untyped-call]
        told = sum_by_name({name: float(x.detach()) * minibatch.weight for name, x in parts.items()})
        total = told.pop("loss")
        if ppo.max_kl is not None and told["policy/approx_kl"] > ppo.max_kl:
            optimizer.zero_grad()
            stopped = True
            break
        sum_gradients(learned)
        taken.append(told | clip_and_step(optimizer, learned, max_norm=ppo.clip_norm, guard=guard, loss=total))
    return mean_metrics(taken) | {"optim/steps": len(taken), "policy/stopped": float(stopped)}


def noise_share(paid: Tensor, sequences: Sequences, cfg: Config) -> dict[str, float]:
    """How often noise was in view after a step, and which share of the reward was paid there."""
    if cfg.world.env != "noisy_tv":
        return {}
    noisy = torch.from_numpy(noise_seen(sequences.state.numpy()))[:, 1:].to(paid.device)
    share = paid[noisy].sum() / paid.sum().clamp(min=1e-6)
    return mean_over_processes({"rollout/noise_rate": noisy.float().mean(), "reward/noise_share": share})
