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
from dataclasses import dataclass, replace
from typing import Any, Literal

from lookact.errors import ConfigError
from lookact.recipes.pref_agent import Agent, Learn, RewardOf, learn, look_over, open_agent, play, wander
from lookact.recipes.pref_artifacts import begin_artifacts, save_artifacts
from lookact.recipes.pref_eval import Evaluation, collect, evaluate, greedy_policy, random_policy, run_episodes
from lookact.recipes.pref_judge import REPORT, Teaching
from lookact.recipes.pref_labels import Feedback
from lookact.recipes.pref_reward import Reward, hold_session, is_due, open_feedback
from lookact.recipes.pref_service import Asking
from lookact.recipes.pref_tables import EVAL_COLUMNS, QUERY_COLUMNS, Table
from lookact.recipes.pref_world import World, horizon_of, make_env
from lookact.train.checkpoint import Best
from lookact.train.config import setting
from lookact.train.distributed import world_size
from lookact.train.run import Run
from lookact.train.weights import Weights

__all__ = ["PRESETS", "Config", "collect", "evaluate", "main"]
SEEING = ("embedded", "server")
"""Judges that look at pictures; the others are told the true rewards."""


@dataclass(frozen=True)
class Judge:
    """Who compares."""

    kind: Literal["embedded", "server", "oracle", "mistake", "noisy", "skip", "myopic", "equal"] = setting(
        "embedded", help="a tiny VLM taught and served on the spot, a server that runs, or a simulated teacher"
    )
    asking: Asking = Asking()
    teaching: Teaching = Teaching()


@dataclass(frozen=True)
class Config:
    seed: int = setting(0, help="seeds everything")
    reward: Literal["learned", "true"] = setting("learned", help="true: plain SAC on the true reward, to compare with")
    world: World = World()
    judge: Judge = Judge()
    feedback: Feedback = Feedback()
    model: Reward = Reward()
    learn: Learn = Learn()
    evaluation: Evaluation = Evaluation()
    keep: int = setting(1, help="checkpoints to keep; each holds the replay", least=1)


SMALL = Config(
    world=World(action_repeat=2),
    feedback=Feedback(total=400, session=40, every=2),
    model=Reward(epochs=50, lr=1e-3, hidden=(128, 128)),
    learn=Learn(episodes=30, random=2, wander=3, hidden=(128, 128), lr=1e-3, rows=128, tau=0.01, capacity=10_000),
    evaluation=Evaluation(every=5, episodes=5, final_episodes=30),
)
PRESETS = {
    "debug": Config(
        world=World(horizon=20),
        judge=Judge(teaching=Teaching(pictures=64, held_out=16, looks=1, lessons=64, epochs=1)),
        feedback=Feedback(total=12, session=6, every=1),
        model=Reward(epochs=2, hidden=(16,)),
        learn=Learn(episodes=4, random=1, wander=1, hidden=(16,), rows=16, after_reset=4, capacity=60),
        evaluation=Evaluation(every=1, episodes=1, final_episodes=2),
    ),
    "small": SMALL,
    "arm": Config(
        world=World(task="door-close-v3", horizon=30, action_repeat=4),
        judge=Judge(teaching=Teaching(pictures=2000, looks=4, lessons=5000)),
        feedback=Feedback(total=1280, session=80, every=6),
        model=replace(SMALL.model, epochs=20, peak=5.0),
        learn=replace(
            SMALL.learn,
            episodes=120,
            random=20,
            held=0.8,
            wander=10,
            updates=2,
            gamma=0.97,
            reward_scale=0.1,
            alpha=0.05,
            entropy=-0.25,
        ),
        evaluation=Evaluation(every=10, episodes=5, final_episodes=30),
    ),
    "full": Config(
        world=World(task="sweep-into-v3", horizon=250, action_repeat=2, image_size=128),
        judge=Judge(kind="server", asking=Asking(variant="two_step", patience=600.0)),
        feedback=Feedback(total=20_000, session=40, every=16),
        model=Reward(inputs="frame"),
        learn=Learn(episodes=4000, random=4, wander=36, capacity=100_000),
        evaluation=Evaluation(every=40, final_episodes=100),
    ),
}


def main(cfg: Config, run: Run) -> dict[str, Any]:
    if world_size() > 1:
        raise ConfigError(f"pref-sac trains in one process, not in {world_size()}: leave --processes out")
    begin_artifacts(run)
    env = make_env(cfg.world)
    learned = cfg.reward == "learned"
    agent = open_agent(cfg, env, frames=learned and (cfg.judge.kind in SEEING or cfg.model.inputs == "frame"))
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
                look_over(agent)
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
            report = run_episodes(
                greedy_policy(agent.sac), cfg.world, seed=cfg.seed, split="validate", episodes=cfg.evaluation.episodes
            )
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


def finish(cfg: Config, agent: Agent, run: Run) -> dict[str, Any]:
    """The agent and a random policy on starts that nothing else uses, and how good the judge was."""
    sizes: dict[str, Any] = {"seed": cfg.seed, "split": "test", "episodes": cfg.evaluation.final_episodes}
    result: dict[str, Any] = {
        "agent": run_episodes(greedy_policy(agent.sac), cfg.world, **sizes),
        "random": run_episodes(random_policy(agent.sac.action_size, cfg.seed), cfg.world, **sizes),
    }
    report = run.folder / "judge" / REPORT
    if cfg.reward == "learned" and report.exists():
        clear = json.loads(report.read_text(encoding="utf-8"))["clear"]
        result["judge"] = {name: clear[name] for name in ("accuracy", "no_preference_rate", "pairs")}
    return result
