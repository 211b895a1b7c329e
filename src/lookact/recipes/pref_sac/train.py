"""pref-sac: soft actor-critic on a reward that is learned from a vision-language model's preferences.

PEBBLE (arXiv:2106.05091) with the judge of RL-VLM-F (arXiv:2402.03681): random actions, unsupervised exploration, then
feedback rounds (which of two images is closer to the goal?) that fit a reward ensemble and relabel the whole replay,
and SAC (arXiv:1812.05905) that maximises it. The true reward is only measured.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import torch

from lookact.algorithms.judge_training import QUERY_COLUMNS
from lookact.algorithms.reward_learning import (
    Feedback,
    Query,
    draw_pairs,
    label_accuracy,
    round_size,
    select_pairs,
    shown_steps,
    state_entropy_rewards,
)
from lookact.data.replay import Replay, Transitions
from lookact.envs.control.fixed_horizon import ControlEnv, horizon_of
from lookact.errors import ConfigError
from lookact.models.sac import SACLearner
from lookact.ops.masked import Metrics
from lookact.ops.sac_loss import actor_loss, critic_loss, critic_target, polyak_update, temperature_loss
from lookact.recipes.pref_sac.config import Config, SACConfig
from lookact.recipes.pref_sac.evaluate import collect, evaluate, final_report, make_env, make_replay, make_sac, validate
from lookact.recipes.pref_sac.judge import begin_labels, open_feedback
from lookact.seeding import derive, numpy_rng, torch_rng
from lookact.training.checkpoint import Best
from lookact.training.distributed import world_size
from lookact.training.run import Run, begin_artifacts, save_artifacts
from lookact.training.trackers import Table

__all__ = ["collect", "evaluate", "main", "sac_update"]
logger = logging.getLogger(__name__)
EVAL_COLUMNS = ("step", "success_rate", "episode_return", "episodes")
"""Of eval.csv; `step` counts decisions."""
POOL = 512
"""States that the state entropy is estimated against."""


def main(cfg: Config, run: Run) -> dict[str, Any]:
    if world_size() > 1:
        raise ConfigError(f"pref-sac trains in one process, not in {world_size()}: leave --processes out")
    begin_artifacts(run)
    env, sac, learn = make_env(cfg.env), make_sac(cfg), cfg.learn
    learner, replay = SACLearner(sac, lr=learn.lr), make_replay(cfg, env)
    queries = Table(run.folder / "vlm_query_log.csv", QUERY_COLUMNS)
    evals = Table(run.folder / "eval.csv", EVAL_COLUMNS)
    weights: dict[str, Any] = {"sac": sac, "replay": replay.write}
    state: dict[str, Any] = {"sac": learner, "queries": queries, "evals": evals}
    with ExitStack() as closing:
        feedback = None
        if cfg.reward == "learned":
            feedback = open_feedback(cfg, replay, run, closing)
            weights["reward"], state = feedback.learner.model, state | feedback.state
        checkpoint = run.restore(weights=weights, state=state)
        if checkpoint is not None:
            replay.read(checkpoint.weights("replay"))
        else:
            queries.begin()
            evals.begin()
            begin_labels(cfg, feedback)

        for episode in run.steps(learn.episodes, "acting and learning"):
            # environment steps and SAC updates
            began = time.perf_counter()
            metrics = run_episode(cfg, env, learner, replay, feedback, episode)
            if episode == learn.random_episodes:
                # observation normaliser: fitted to the states that random actions reach
                sac.standardise.fit(torch.from_numpy(replay.slots(np.arange(len(replay))).next_states))
            acted = time.perf_counter()

            # feedback round: query selection, labels, reward ensemble, relabelling
            since = episode - learn.random_episodes - learn.unsupervised_episodes
            if feedback is not None and since >= 0 and since % cfg.feedback.every == 0:
                metrics |= feedback_round(cfg, feedback, learner, replay, queries, episode)
            asked = time.perf_counter()
            metrics |= {"time/act": acted - began, "time/feedback": asked - acted}

            # evaluate, log, checkpoint
            if episode % cfg.evaluation.every and episode != learn.episodes:
                run.log(metrics, episode, show="rollout/return")
                continue
            report = validate(cfg, sac, run.folder, episode)
            evals.extend([(episode * horizon_of(env), *(report[name] for name in EVAL_COLUMNS[1:]))])
            metrics |= {f"eval/{name}": report[name] for name in ("success_rate", "episode_return")}
            metrics["time/evaluate"] = time.perf_counter() - asked
            run.log(metrics, episode, show="eval/episode_return")
            best: Best = ("eval/episode_return", "max")
            save_artifacts(run, episode, weights=weights, state=state, metrics=metrics, keep=cfg.keep, best=best)
    return final_report(cfg, sac, run.folder)


def run_episode(
    cfg: Config, env: ControlEnv, learner: SACLearner, replay: Replay, feedback: Feedback | None, episode: int
) -> dict[str, float]:
    """One episode into the replay, with SAC updates after its steps; none while actions are random."""
    sac, learn = learner.sac, cfg.learn
    random = episode <= learn.random_episodes
    exploring = feedback is not None and not feedback.learner.fits
    act_rng, learn_rng = torch_rng(cfg.seed, "act", episode), torch_rng(cfg.seed, "learn", episode)
    action_rng, sticky = numpy_rng(cfg.seed, "random actions", episode), learn.sticky_action_prob
    state, _ = env.reset(seed=derive(cfg.seed, "train", episode) % 2**31)
    train_return, true_return, success = 0.0, 0.0, False
    losses: Metrics = {}
    bonus = entropy_weight(learn, episode)
    for step in range(horizon_of(env)):
        # act: by the policy, or at random, repeating the last action with the sticky probability
        if not random:
            action = sac.act_on(state, act_rng)
        elif step == 0 or not sticky or action_rng.random() >= sticky:
            action = action_rng.uniform(-1.0, 1.0, sac.action_size).astype(np.float32)
        next_state, true_reward, terminated, truncated, info = env.step(action)
        image: Any = env.render() if replay.has_frames or replay.has_pictures else None
        (frame, picture), score = replay.images(image), float(true_reward)
        # reward: none before the first fit, which relabels; then the learned one, or the true one
        if feedback is None:
            reward = learn.reward_scale * score
        else:
            reward = 0.0 if exploring else feedback.reward.of_step(next_state, frame)
        kept: Any = {"frame": frame, "picture": picture, "score": score}
        replay.add(state, action, reward, next_state, terminated, truncated, **kept)
        state = next_state
        train_return, true_return = train_return + reward, true_return + score
        success = success or bool(info["success"])
        # update: on the state-entropy bonus while exploring, then on the rewards in the replay, and what is left of it
        if random or step % learn.train_freq:
            continue
        for _ in range(learn.gradient_steps):
            batch = replay.sample(learn.batch_size, learn_rng, device=sac.device)
            if exploring or bonus:
                pool = replay.sample(POOL, learn_rng, device=sac.device).next_states
                novelty = state_entropy_rewards(batch.next_states, pool)
                batch = replace(batch, rewards=novelty if exploring else batch.rewards + bonus * novelty)
            losses = sac_update(learner, batch, learn_rng, learn)
    returns = {"rollout/return": true_return, "rollout/success": float(success), "rollout/train_return": train_return}
    return returns | {name: float(value) for name, value in losses.items()}


def entropy_weight(learn: SACConfig, episode: int) -> float:
    """Weight of the state-entropy bonus beside the reward (RE3, arXiv:2102.09430); it falls to zero linearly."""
    return learn.entropy_bonus * max(0.0, 1.0 - (episode - learn.random_episodes) / learn.bonus_episodes)


def sac_update(learner: SACLearner, batch: Transitions, generator: torch.Generator, learn: SACConfig) -> Metrics:
    """One gradient step of critics, actor and temperature; the batch is on the networks' device, noise on the CPU's."""
    sac, alpha = learner.sac, learner.sac.log_alpha.detach().exp()
    states, next_states = sac.standardise(batch.states), sac.standardise(batch.next_states)
    noise, next_noise = torch.randn(2, *batch.actions.shape, generator=generator).to(sac.device)

    # critics: soft Bellman target of the target critics' minimum
    with torch.no_grad():
        next_actions, next_logprobs = sac.actor.sample(next_states, next_noise)
        next_q = sac.target_critics(next_states, next_actions).amin(dim=0)
    target = critic_target(batch.rewards, batch.terminated, next_q, next_logprobs, gamma=learn.gamma, alpha=alpha)
    q_loss, q_metrics = critic_loss(sac.critics(states, batch.actions), target)
    learner.critic_optimizer.zero_grad()
    q_loss.backward()  # type: ignore[no-untyped-call]
    learner.critic_optimizer.step()

    # actor and temperature: the critics get no gradient
    actions, logprobs = sac.actor.sample(states, noise)
    pi_loss, pi_metrics = actor_loss(logprobs, sac.critics(states, actions).min(dim=0).values, alpha=alpha)
    target_entropy = learn.target_entropy * sac.action_size
    alpha_loss, alpha_metrics = temperature_loss(sac.log_alpha, logprobs, target_entropy=target_entropy)
    learner.actor_optimizer.zero_grad()
    (pi_loss + alpha_loss).backward(inputs=learner.actor_parameters)  # type: ignore[no-untyped-call]
    learner.actor_optimizer.step()

    # target critics
    learner.steps += 1
    if learner.steps % learn.target_update_interval == 0:
        polyak_update(sac.target_critics.parameters(), sac.critics.parameters(), tau=learn.tau)
    policy = {f"policy/{name}": value for name, value in (q_metrics | pi_metrics | alpha_metrics).items()}
    return {"loss/critic": q_loss.detach(), "loss/actor": pi_loss.detach()} | policy


def feedback_round(
    cfg: Config, feedback: Feedback, learner: SACLearner, replay: Replay, queries: Table, episode: int
) -> dict[str, float]:
    """Label queries, fit the reward ensemble, relabel the replay; the first time the critics are reset."""
    how, model, store, learn = cfg.feedback, cfg.reward_model, feedback.store, cfg.learn
    number = (episode - learn.random_episodes - learn.unsupervised_episodes) // how.every
    first = not feedback.learner.fits
    if first:
        # normaliser of the reward model
        seen = replay.features(np.arange(len(replay)), model.inputs)
        feedback.learner.model.fit_normaliser(torch.from_numpy(seen))
    asked, done = store.counts["pairs"], episode / learn.episodes
    count = round_size(how.schedule, average=how.pairs_per_round, total=how.total, asked=asked, done=done)
    metrics = label_queries(cfg, feedback, replay, queries, number, count) if count else {}
    if not len(store):
        logger.warning("the judge has preferred nothing yet: %d pairs asked about", store.counts["pairs"])
        return metrics
    if count or first:
        metrics |= feedback.learner.fit(
            store,
            epochs=model.epochs,
            batch_size=model.batch_size,
            target_accuracy=model.target_accuracy,
            seed=cfg.seed,
            bootstrap=model.bootstrap,
        )
        metrics |= feedback.reward.relabel(replay)
    if first:
        # the critics know the exploration bonus only
        learner.reset_critics(torch_rng(cfg.seed, "critics"))
        generator = torch_rng(cfg.seed, "after reset")
        for _ in range(learn.reset_gradient_steps):
            batch = replay.sample(learn.batch_size, generator, device=cfg.device)
            sac_update(learner, batch, generator, learn)
    return metrics


def label_queries(
    cfg: Config, feedback: Feedback, replay: Replay, queries: Table, number: int, count: int
) -> dict[str, float]:
    """Select `count` pairs of segments and add the judge's labels to the preferences and to the log."""
    how, store, inputs, model = cfg.feedback, feedback.store, cfg.reward_model.inputs, feedback.learner.model
    # query selection
    candidates = count if how.strategy == "uniform" else count * how.candidates
    rng = numpy_rng(cfg.seed, "queries", number)
    drawn = draw_pairs(replay, length=how.segment_length, count=candidates, rng=rng)
    pairs = select_pairs(how.strategy, drawn, count=count, replay=replay, model=model, kind=inputs)
    # labels: a judge who is shown images sees some steps of a segment, and only these are summed
    shown = feedback.judge is not None
    pairs = shown_steps(pairs, how.frames) if shown else pairs
    query = Query.of(replay, pairs, shown=shown)
    labels, scores = np.array(feedback.label(query, number)), query.true_rewards.sum(axis=2)
    now = datetime.now().isoformat(timespec="seconds")
    queries.extend([(*both, label, now, number) for both, label in zip(scores.tolist(), labels.tolist())])
    segments = replay.features(pairs, inputs)
    store.add(segments[:, 0], segments[:, 1], labels)
    right, decided = label_accuracy(labels, scores[:, 0], scores[:, 1])
    metrics = {f"judge/{name}": float(value) for name, value in {**store.counts, **feedback.judge_counts}.items()}
    return metrics | ({"judge/accuracy": right / decided} if decided else {})
