"""The agent of pref-sac: it wanders, then maximises whatever reward it is given, one episode at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lookact.algorithms.sac import SACLearner, SACSpec
from lookact.data.replay import Replay
from lookact.models.sac import SAC
from lookact.ops.curiosity import knn_entropy_reward
from lookact.ops.masked import Metrics
from lookact.recipes.pref_sac.config import Config
from lookact.recipes.pref_sac.evaluate import make_sac, sampled_policy
from lookact.recipes.pref_sac.task import Env, horizon_of
from lookact.seeding import derive, numpy_rng, torch_rng

logger = logging.getLogger(__name__)
POOL, NEIGHBOUR = 512, 6
"""States that novelty is measured against, and the how-manieth nearest counts; a state may be its own nearest."""
RewardOf = Callable[[NDArray[np.float32], NDArray[np.uint8] | None, float], float]
"""What a step earns, by the state and the frame after it and its true reward."""
Improve = Callable[["Config", "Agent", torch.Generator], Metrics]


@dataclass(frozen=True)
class Agent:
    """Networks, what teaches them, and what they have lived through."""

    sac: SAC
    learner: SACLearner
    replay: Replay
    frame_shape: tuple[int, int, int] | None
    """(h, w, 3) of the pictures that the replay keeps, None where it keeps none."""


def open_agent(cfg: Config, env: Env, *, frames: bool) -> Agent:
    """An agent that knows nothing yet; the memory its replay takes is told at once."""
    sac, how = make_sac(cfg), cfg.learn
    spec = SACSpec(
        lr=how.lr,
        gamma=how.gamma,
        tau=how.tau,
        target_every=how.target_every,
        target_entropy=how.entropy * sac.action_size,
    )
    env.reset(seed=0)
    seen: Any = env.render() if frames else None
    shape = None if seen is None else seen.shape
    needed = how.episodes * horizon_of(env)
    replay = Replay(
        capacity=min(how.capacity, needed), state_size=sac.state_size, action_size=sac.action_size, frame_shape=shape
    )
    logger.info("the replay holds %d transitions in %.0f MB", replay.capacity, replay.nbytes / 1e6)
    return Agent(sac, SACLearner(sac, spec), replay, shape)


def play(
    cfg: Config, env: Env, agent: Agent, episode: int, *, reward_of: RewardOf, improve: Improve | None
) -> dict[str, float]:
    """One episode, every step kept in the replay and followed by learning where there is something to `improve`."""
    sample_action = sampled_policy(agent.sac, torch_rng(cfg.seed, "act", episode))
    learn_rng = torch_rng(cfg.seed, "learn", episode)
    random_actions = held_actions(cfg.learn.held, agent.sac.action_size, numpy_rng(cfg.seed, "random actions", episode))
    state, _ = env.reset(seed=derive(cfg.seed, "train", episode) % 2**31)
    earned, true, success, losses = 0.0, 0.0, False, {}
    for step in range(horizon_of(env)):
        if episode <= cfg.learn.random:
            action = next(random_actions)
        else:
            action = sample_action(state, step)
        following, score, terminated, truncated, info = env.step(action)
        frame: Any = None if agent.frame_shape is None else env.render()
        reward = reward_of(following, frame, float(score))
        agent.replay.add(
            state,
            action,
            reward,
            following,
            terminated=terminated,
            truncated=truncated,
            frame=frame,
            score=float(score),
        )
        state = following
        earned, true, success = earned + reward, true + float(score), success or bool(info["success"])
        if improve is not None and step % cfg.learn.every == 0:
            for _ in range(cfg.learn.updates):
                losses = improve(cfg, agent, learn_rng)
    told = {"rollout/return": true, "rollout/success": float(success), "rollout/earned": earned}
    return told | {name: float(value) for name, value in losses.items()}


def held_actions(held: float, size: int, rng: np.random.Generator) -> Iterator[NDArray[np.float32]]:
    """Uniformly random actions (size,) without end, each as likely as `held` to be followed by itself."""
    while True:
        action = rng.uniform(-1.0, 1.0, size).astype(np.float32)
        yield action
        while held and rng.random() < held:
            yield action


def fit_normaliser(agent: Agent) -> None:
    """Take the scale of states from all that was lived through so far."""
    seen = agent.replay.slots(np.arange(len(agent.replay))).next_states
    agent.sac.standardise.fit(torch.from_numpy(seen))


def learn(cfg: Config, agent: Agent, generator: torch.Generator) -> Metrics:
    """A gradient step on the rewards that the replay holds."""
    batch = agent.replay.sample(cfg.learn.rows, generator, device=agent.sac.device)
    return agent.learner.update(batch, generator)


def wander(cfg: Config, agent: Agent, generator: torch.Generator) -> Metrics:
    """A gradient step towards states that are far from all others: the entropy of where the agent has been."""
    batch = agent.replay.sample(cfg.learn.rows, generator, device=agent.sac.device)
    pool = agent.replay.sample(POOL, generator, device=agent.sac.device).next_states
    spread = pool.std(dim=0, correction=0)
    # centimetres must count beside metres, and what never changes must not count at all
    scale = torch.where(spread > 1e-4, 1.0 / spread.clamp(min=1e-4), 0.0)
    novelty = knn_entropy_reward(batch.next_states * scale, pool * scale, NEIGHBOUR)
    paid = (novelty - novelty.mean()) / novelty.std(correction=0).clamp(min=1e-3)
    return agent.learner.update(replace(batch, rewards=paid), generator)
