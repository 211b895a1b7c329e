"""What pref-sac's agent earns: episodes by the true reward, which it never learned from."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lookact.algorithms.control_episodes import control_turn
from lookact.errors import ConfigError
from lookact.models.sac import SAC
from lookact.recipes.pref_sac.config import Config, World
from lookact.recipes.pref_sac.task import Env, goal_or_task, horizon_of, make_env
from lookact.seeding import derive, numpy_rng, torch_rng
from lookact.training.evaluation import bootstrap_interval, wilson_interval
from lookact.training.kept_episodes import EPISODES, keep_episodes
from lookact.training.progress import progress
from lookact.training.weights import read_weights
from lookact.types import Episode, Observation, Turn

logger = logging.getLogger(__name__)
Array = NDArray[np.float32]
Act = Callable[[Array, int], Array]
"""From a state (s,) and the step's number to an action (a,)."""
Report = dict[str, Any]
SHOWN = 4
"""Episodes of an evaluation that are kept: a picture of each step must be drawn for them."""


def make_sac(cfg: Config) -> SAC:
    """Networks of the task's sizes on their device, as they are before any learning."""
    env = make_env(cfg.world)
    sizes = int(np.prod(env.observation_space.shape or ())), int(np.prod(env.action_space.shape or ()))
    sac = SAC(*sizes, hidden=cfg.learn.hidden, alpha=cfg.learn.alpha, generator=torch_rng(cfg.seed, "networks"))
    return sac.to(cfg.device)


def greedy_policy(sac: SAC) -> Act:
    """The mean of the actor's distribution."""
    return lambda state, step: sac.act(torch.from_numpy(state)[None].to(sac.device))[0].cpu().numpy()


def sampled_policy(sac: SAC, generator: torch.Generator) -> Act:
    """Actions as they are drawn in training."""

    def act(state: Array, step: int) -> Array:
        noise = torch.randn(1, sac.action_size, generator=generator).to(sac.device)
        return sac.act(torch.from_numpy(state)[None].to(sac.device), noise)[0].cpu().numpy()

    return act


def random_policy(size: int, seed: int) -> Act:
    """Uniform actions."""
    rng = numpy_rng(seed, "random policy")
    return lambda state, step: rng.uniform(-1.0, 1.0, size).astype(np.float32)


def run_episodes(
    act: Act, world: World, *, seed: int, split: str, episodes: int, keep: Callable[[list[Episode]], None] | None = None
) -> Report:
    """Success (at any step) and return of each episode, as means with their intervals; `keep` is given a few."""
    env = make_env(world)
    drawn = keep is not None and can_draw(env)
    returns, successes, kept = [], [], []
    for number in progress(range(episodes), "evaluating"):
        shown = keep is not None and number < SHOWN
        start = derive(seed, split, number) % 2**31
        turns, last = play(act, env, start, goal=goal_or_task(world), pictures=shown and drawn)
        returns.append(sum(turn.reward for turn in turns))
        successes.append(any(turn.info["success"] for turn in turns))
        if shown:
            kept.append(Episode(f"{split}-{number:04d}", number, start, tuple(turns), last))
    env.close()
    if keep is not None:
        keep(kept)
    return {
        "success_rate": float(np.mean(successes)),
        "episode_return": float(np.mean(returns)),
        "episodes": episodes,
        "ci": {
            "success_rate": list(wilson_interval(sum(successes), episodes)),
            "episode_return": list(bootstrap_interval(returns)),
        },
    }


def can_draw(env: Env) -> bool:
    """Whether pictures can be had; a task whose judge needs none runs without, also where there is no OpenGL."""
    env.reset(seed=0)
    try:
        env.render()
    except Exception as error:
        logger.warning("episodes are kept without pictures, which can't be drawn here: %s", error)
        return False
    return True


def play(act: Act, env: Env, seed: int, *, goal: str, pictures: bool) -> tuple[list[Turn], Observation]:
    """An episode's steps, and what is seen after the last; nothing is drawn unless `pictures` are wanted."""

    def seen(state: Array) -> Observation:
        images: dict[str, Any] = {"camera": env.render()} if pictures else {}
        return Observation(goal, images, state=np.array(state, dtype=np.float32))

    state, _ = env.reset(seed=seed)
    turns, success = [], False
    for step in range(horizon_of(env)):
        now, action = seen(state), act(state, step)
        state, reward, terminated, truncated, info = env.step(action)
        # a task that was done once counts as done
        success = success or bool(info["success"])
        turns.append(
            control_turn(
                now, action, float(reward), terminated=terminated, truncated=truncated, info={"success": success}
            )
        )
    return turns, seen(state)


def evaluate(
    cfg: Config, *, checkpoint: Path | None, episodes: int, greedy: bool, dummy: bool, folder: Path
) -> dict[str, Any]:
    """A checkpoint, or the uniformly random policy, on the test split, by the true reward; episodes go to `folder`."""
    sac = make_sac(cfg)
    if dummy:
        act = random_policy(sac.action_size, cfg.seed)
    else:
        assert checkpoint is not None
        read_weights(sac, checkpoint / "sac")()
        act = greedy_policy(sac) if greedy else sampled_policy(sac, torch_rng(cfg.seed, "evaluate"))
    keep = partial(keep_episodes, folder / EPISODES)
    report = run_episodes(act, cfg.world, seed=cfg.seed, split="test", episodes=episodes, keep=keep)
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    return report


def collect(cfg: Config, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
    """Refused: what this recipe keeps are labels, and training itself writes them down."""
    raise ConfigError(
        "pref-sac collects while it trains: see vlm_query_log.csv and labels.safetensors of a run; "
        "its episodes are kept by train and by lookact eval pref-sac"
    )
