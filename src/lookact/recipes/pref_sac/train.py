"""pref-sac: an agent learns from a reward that is itself learned from a vision-language model's preferences.

Wander first, as widely as possible (PEBBLE, arXiv:2106.05091); then ask again and again which of two pictures is closer
to the goal (RL-VLM-F, arXiv:2402.03681), learn a reward from the answers, relabel the whole replay with it, and let
soft actor-critic maximise it. The true reward is only ever measured.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from lookact.errors import ConfigError
from lookact.recipes.pref_sac.agent import Agent, RewardOf, fit_normaliser, learn, open_agent, play, wander
from lookact.recipes.pref_sac.artifacts import begin_artifacts, save_artifacts
from lookact.recipes.pref_sac.config import Config, needs_frames
from lookact.recipes.pref_sac.evaluate import collect, evaluate, greedy_policy, random_policy, run_episodes
from lookact.recipes.pref_sac.judge import REPORT
from lookact.recipes.pref_sac.reward import hold_session, is_due, open_feedback
from lookact.recipes.pref_sac.tables import EVAL_COLUMNS, QUERY_COLUMNS, Table
from lookact.recipes.pref_sac.task import horizon_of, make_env
from lookact.training.checkpoint import Best
from lookact.training.distributed import world_size
from lookact.training.kept_episodes import keep_evaluation, step_name
from lookact.training.run import Run
from lookact.training.weights import Weights

__all__ = ["collect", "evaluate", "main"]


def main(cfg: Config, run: Run) -> dict[str, Any]:
    if world_size() > 1:
        raise ConfigError(f"pref-sac trains in one process, not in {world_size()}: leave --processes out")
    env = make_env(cfg.world)
    begin_artifacts(run)
    learned = cfg.reward == "learned"
    agent = open_agent(cfg, env, frames=needs_frames(cfg))
    queries, evals = (
        Table(run.folder / "vlm_query_log.csv", QUERY_COLUMNS),
        Table(run.folder / "eval.csv", EVAL_COLUMNS),
    )
    with ExitStack() as closing:
        feedback = open_feedback(cfg, run, agent, queries, closing) if learned else None
        weights: dict[str, Weights] = {"sac": agent.sac, "replay": agent.replay.write}
        state: dict[str, Any] = {"sac": agent.learner, "queries": queries, "evals": evals}
        if feedback is not None:
            weights, state = weights | feedback.weights, state | feedback.state
        restore(run, agent, weights, state)

        for episode in run.steps(cfg.learn.episodes, "acting and learning"):
            # look and act, and learn from all that was lived through
            began = time.perf_counter()
            wandering = learned and episode <= cfg.learn.random + cfg.learn.wander
            reward_of = (
                no_reward if wandering else feedback.reward_of if feedback else true_reward(cfg.learn.reward_scale)
            )
            improve = None if episode <= cfg.learn.random else wander if wandering else learn
            metrics = play(cfg, env, agent, episode, reward_of=reward_of, improve=improve)
            if episode == cfg.learn.random:
                fit_normaliser(agent)
            acted = time.perf_counter()

            # ask which is better, and learn to tell
            if feedback is not None and is_due(cfg, episode):
                metrics |= hold_session(cfg, feedback, agent, episode, run.folder)
            asked = time.perf_counter()
            metrics |= {"time/act": acted - began, "time/feedback": asked - acted}

            # report
            if episode % cfg.evaluation.every and episode != cfg.learn.episodes:
                run.log(metrics, episode, show="rollout/return")
                continue
            report = validate(cfg, agent, run, episode)
            evals.extend([(episode * horizon_of(env), *(report[name] for name in EVAL_COLUMNS[1:]))])
            metrics |= {f"eval/{name}": report[name] for name in ("success_rate", "episode_return")}
            metrics["time/evaluate"] = time.perf_counter() - asked
            run.log(metrics, episode, show="eval/episode_return")
            best: Best = ("eval/episode_return", "max")
            save_artifacts(run, episode, weights=weights, state=state, metrics=metrics, keep=cfg.keep, best=best)
    return finish(cfg, agent, run)


def restore(run: Run, agent: Agent, weights: Mapping[str, Weights], state: Mapping[str, Any]) -> None:
    """Go on from the run's checkpoint, or begin with empty tables."""
    checkpoint = run.restore(weights=weights, state=state)
    if checkpoint is not None:
        agent.replay.read(checkpoint.weights("replay"))
        return
    for table in ("queries", "evals"):
        state[table].begin()


def no_reward(state: Any, frame: Any, score: float) -> float:
    """Nothing: while the agent wanders it is paid by novelty, and the first session relabels all of it."""
    return 0.0


def true_reward(scale: float) -> RewardOf:
    """The simulator's own times `scale`, to compare with."""
    return lambda state, frame, score: scale * score


def validate(cfg: Config, agent: Agent, run: Run, episode: int) -> dict[str, Any]:
    """The greedy agent by the true reward, on starts of its own; a few episodes are kept."""
    keep = partial(keep_evaluation, run.folder, step_name(episode))
    count = cfg.evaluation.episodes
    return run_episodes(greedy_policy(agent.sac), cfg.world, seed=cfg.seed, split="validate", episodes=count, keep=keep)


def finish(cfg: Config, agent: Agent, run: Run) -> dict[str, Any]:
    """The agent and a random policy on starts that nothing else uses, and how good the judge was."""
    sizes: dict[str, Any] = {"seed": cfg.seed, "split": "test", "episodes": cfg.evaluation.final_episodes}
    policies = {
        "agent": ("after-greedy", greedy_policy(agent.sac)),
        "random": ("random", random_policy(agent.sac.action_size, cfg.seed)),
    }
    result: dict[str, Any] = {
        who: run_episodes(act, cfg.world, **sizes, keep=partial(keep_evaluation, run.folder, name))
        for who, (name, act) in policies.items()
    }
    report = run.folder / "judge" / REPORT
    if cfg.reward == "learned" and report.exists():
        clear = json.loads(report.read_text(encoding="utf-8"))["clear"]
        result["judge"] = {name: clear[name] for name in ("accuracy", "no_preference_rate", "pairs")}
    return result
