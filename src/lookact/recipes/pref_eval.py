"""What pref-sac's agent earns: episodes by the true reward, which it never learned from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch
from numpy.typing import NDArray

from lookact.errors import ConfigError
from lookact.models.sac import SAC
from lookact.recipes.pref_config import Config, World
from lookact.recipes.pref_world import horizon_of, make_env
from lookact.seeding import derive, numpy_rng, torch_rng
from lookact.train.evaluate import bootstrap_interval, wilson_interval
from lookact.train.progress import progress
from lookact.train.weights import read_weights
from lookact.types import Image

Array = NDArray[np.float32]
Act = Callable[[Array, int], Array]
"""From a state (s,) and the step's number to an action (a,)."""
Report = dict[str, Any]
SHOWN = 4
"""Episodes of which `lookact eval` keeps pictures, and pictures of each."""
PICTURES = 8


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


def run_episodes(act: Act, world: World, *, seed: int, split: str, episodes: int, folder: Path | None = None) -> Report:
    """Success (at any step) and return of each episode, as means with their intervals; pictures go to `folder`."""
    env = make_env(world)
    returns, successes = [], []
    for episode in progress(range(episodes), "evaluating"):
        shown = folder is not None and episode < SHOWN
        total, success, pictures = 0.0, False, []
        state, _ = env.reset(seed=derive(seed, split, episode) % 2**31)
        for step in range(horizon_of(env)):
            state, reward, _, _, info = env.step(act(state, step))
            total, success = total + float(reward), success or bool(info["success"])
            if shown and step % max(1, horizon_of(env) // PICTURES) == 0:
                pictures.append(env.render())
        returns.append(total)
        successes.append(success)
        if shown and folder is not None:
            keep_strip(pictures, folder / f"{split}-{episode:04d}.png")
    env.close()
    return {
        "success_rate": float(np.mean(successes)),
        "episode_return": float(np.mean(returns)),
        "episodes": episodes,
        "ci": {
            "success_rate": list(wilson_interval(sum(successes), episodes)),
            "episode_return": list(bootstrap_interval(returns)),
        },
    }


def keep_strip(pictures: list[Any], path: Path) -> None:
    """Pictures of one episode side by side."""
    strip: Image = np.concatenate(pictures, axis=1)
    PIL.Image.fromarray(strip).save(path)


def evaluate(
    cfg: Config, *, checkpoint: Path | None, episodes: int, greedy: bool, dummy: bool, folder: Path
) -> dict[str, Any]:
    """A checkpoint, or the uniformly random policy, on the test split, by the true reward; pictures go to `folder`."""
    sac = make_sac(cfg)
    if dummy:
        act = random_policy(sac.action_size, cfg.seed)
    else:
        assert checkpoint is not None
        read_weights(sac, checkpoint / "sac")()
        act = greedy_policy(sac) if greedy else sampled_policy(sac, torch_rng(cfg.seed, "evaluate"))
    report = run_episodes(act, cfg.world, seed=cfg.seed, split="test", episodes=episodes, folder=folder)
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    return report


def collect(cfg: Config, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
    """Refused: what this recipe keeps are labels, and training itself writes them down."""
    raise ConfigError(
        "pref-sac collects while it trains: see vlm_query_log.csv and labels.safetensors of a run; "
        "lookact eval pref-sac keeps pictures of episodes"
    )
