"""Environments and evaluation of pref-sac: greedy, sampled and random policies, by the true reward."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.algorithms.control_episodes import control_turn
from lookact.algorithms.judge_training import REPORT
from lookact.data.replay import Replay
from lookact.envs.control.fixed_horizon import ControlEnv, FixedStart, horizon_of, make_control_env
from lookact.envs.control.gym_control import instruction_of
from lookact.envs.control.metaworld_views import view_of
from lookact.errors import ConfigError
from lookact.judges.goals import goal_of
from lookact.models.sac import SAC
from lookact.recipes.pref_sac.config import Config, EnvConfig, needs_frames, needs_pictures
from lookact.seeding import derive, numpy_rng, torch_rng
from lookact.training.evaluation import (
    EPISODES,
    keep_episodes,
    keep_evaluation,
    make_report,
    step_name,
)
from lookact.training.progress import progress
from lookact.training.weights import read_weights
from lookact.types import Episode, Observation, Turn

logger = logging.getLogger(__name__)
Array = NDArray[np.float32]
Act = Callable[[Array], Array]
"""From a state (s,) to an action (a,)."""
Report = dict[str, Any]
SHOWN = 4
"""Episodes of an evaluation that are kept, with an image of each step."""


def make_env(config: EnvConfig) -> ControlEnv:
    """The task's environment: a state, actions in [-1, 1], a fixed horizon, images as large as anybody needs them."""
    size = config.judge_image_size or config.image_size
    sizes = {"horizon": config.horizon, "action_repeat": config.action_repeat, "image_size": size}
    env = make_control_env(config.task, **sizes, camera=config.camera_name, crop=config.crop)
    return FixedStart(env) if config.fixed_start else env


def goal_in_words(env: EnvConfig) -> str:
    """What the judge is told: of what the task's own view shows, where it is shown that."""
    view = view_of(env.task) if env.camera_name == "task" else None
    return env.goal or instruction_of(env.task) or (view.goal if view is not None else goal_of(env.task))


def goal_or_task(env: EnvConfig) -> str:
    """The same for whoever looks at episodes: a task without words is called by its name."""
    try:
        return goal_in_words(env)
    except ConfigError:
        return env.task


def make_sac(cfg: Config) -> SAC:
    """Untrained networks of the task's sizes, on their device."""
    env = make_env(cfg.env)
    sizes = int(np.prod(env.observation_space.shape or ())), int(np.prod(env.action_space.shape or ()))
    learn, generator = cfg.learn, torch_rng(cfg.seed, "networks")
    sac = SAC(*sizes, hidden=learn.hidden, alpha=learn.alpha, layer_norm=learn.layer_norm, generator=generator)
    return sac.to(cfg.device)


def make_replay(cfg: Config, env: ControlEnv) -> Replay:
    """An empty replay for this environment, with the images that judge and reward model will need."""
    shape: Any = None
    if needs_frames(cfg):
        env.reset(seed=0)
        shape = np.asarray(env.render()).shape
        if cfg.env.judge_image_size:
            shape = (cfg.env.image_size, cfg.env.image_size, 3)
    replay = Replay(
        capacity=min(cfg.learn.replay_capacity, cfg.learn.episodes * horizon_of(env)),
        state_size=int(np.prod(env.observation_space.shape or ())),
        action_size=int(np.prod(env.action_space.shape or ())),
        frame_shape=shape,
        pictures=needs_pictures(cfg),
        pinned=cfg.device.startswith("cuda"),
    )
    logger.info("the replay holds %d transitions in %.0f MB", replay.capacity, replay.nbytes / 1e6)
    return replay


def random_policy(size: int, seed: int) -> Act:
    """Uniform actions."""
    rng = numpy_rng(seed, "random policy")
    return lambda state: rng.uniform(-1.0, 1.0, size).astype(np.float32)


def run_episodes(
    act: Act,
    config: EnvConfig,
    *,
    seed: int,
    split: str,
    episodes: int,
    keep: Callable[[list[Episode]], None] | None = None,
) -> Report:
    """Success (at any step) and return of each episode, as means with their intervals; `keep` is given a few."""
    env = make_env(config)
    rendered = keep is not None and can_render(env)
    returns, successes, kept = [], [], []
    for number in progress(range(episodes), "evaluating"):
        shown = keep is not None and number < SHOWN
        start = derive(seed, split, number) % 2**31
        turns, last = run_episode(act, env, start, goal=goal_or_task(config), images=shown and rendered)
        returns.append(sum(turn.reward for turn in turns))
        successes.append(any(turn.info["success"] for turn in turns))
        if shown:
            kept.append(Episode(f"{split}-{number:04d}", number, start, tuple(turns), last))
    env.close()
    if keep is not None:
        keep(kept)
    numbers = {"success_rate": np.array(successes, np.float64), "episode_return": np.array(returns, np.float64)}
    return make_report(numbers, rates=("success_rate",)).plain()


def can_render(env: ControlEnv) -> bool:
    """Whether images can be rendered; a task whose judge needs none runs without, also where there is no OpenGL."""
    env.reset(seed=0)
    try:
        env.render()
    except Exception as error:
        logger.warning("episodes are kept without images, which can't be rendered here: %s", error)
        return False
    return True


def run_episode(act: Act, env: ControlEnv, seed: int, *, goal: str, images: bool) -> tuple[list[Turn], Observation]:
    """An episode's turns and its last observation; nothing is rendered unless `images` are wanted."""

    def observe(state: Array) -> Observation:
        rendered: dict[str, Any] = {"camera": env.render()} if images else {}
        return Observation(goal, rendered, state=np.array(state, dtype=np.float32))

    state, _ = env.reset(seed=seed)
    turns, success = [], False
    for _ in range(horizon_of(env)):
        observation, action = observe(state), act(state)
        state, reward, terminated, truncated, info = env.step(action)
        # a task that was done once counts as done
        success = success or bool(info["success"])
        ends = {"terminated": terminated, "truncated": truncated}
        turns.append(control_turn(observation, action, float(reward), **ends, info={"success": success}))
    return turns, observe(state)


def validate(cfg: Config, sac: SAC, folder: Path, episode: int) -> Report:
    """The greedy policy on validation starts; a few episodes are kept."""
    keep = partial(keep_evaluation, folder, step_name(episode))
    count = cfg.evaluation.episodes
    return run_episodes(sac.act_on, cfg.env, seed=cfg.seed, split="validate", episodes=count, keep=keep)


def final_report(cfg: Config, sac: SAC, folder: Path) -> dict[str, Any]:
    """The greedy and a random policy on test starts, and the judge's accuracy."""
    policies: dict[str, tuple[str, Act]] = {
        "agent": ("after-greedy", sac.act_on),
        "random": ("random", random_policy(sac.action_size, cfg.seed)),
    }
    count = cfg.evaluation.final_episodes
    result: dict[str, Any] = {}
    for who, (name, act) in policies.items():
        keep = partial(keep_evaluation, folder, name)
        result[who] = run_episodes(act, cfg.env, seed=cfg.seed, split="test", episodes=count, keep=keep)
    report = folder / "judge" / REPORT
    if cfg.reward == "learned" and report.exists():
        clear = json.loads(report.read_text(encoding="utf-8"))["clear"]
        result["judge"] = {name: clear[name] for name in ("accuracy", "no_preference_rate", "pairs")}
    return result


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
        act = partial(sac.act_on, generator=None if greedy else torch_rng(cfg.seed, "evaluate"))
    keep = partial(keep_episodes, folder / EPISODES)
    report = run_episodes(act, cfg.env, seed=cfg.seed, split="test", episodes=episodes, keep=keep)
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    return report


def collect(cfg: Config, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
    """Refused: what this recipe keeps are labels, and training itself writes them down."""
    raise ConfigError(
        "pref-sac collects while it trains: see vlm_query_log.csv and labels of a run; "
        "its episodes are kept by train and by lookact eval pref-sac"
    )
