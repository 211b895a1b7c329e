"""PPO on a told state beside stable-baselines3, and a rollout with pictures beside its simulation alone."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch

from lookact.bench.report import Aim, Row, lone_row, timed_row
from lookact.bench.timing import Facts, Prepare, Timing, Work, race
from lookact.envs.inline import InlineVectorEnv
from lookact.models.control_mlp import ControlMLP, MLPSpec
from lookact.models.vla import PolicySpec
from lookact.models.vla_store import make_vla
from lookact.models.vla_text import TextSpec
from lookact.models.vla_vision import VisionSpec
from lookact.rollout.control import roll_out
from lookact.seeding import derive, numpy_rng, torch_rng
from lookact.train.control_update import improve, open_learner
from lookact.train.settings import PPO

FASTER, SHARE = Aim(1.5, at_least=True), Aim(0.6, at_least=True)
WITHOUT_SB3 = "not installed: pip install 'lookact[bench]'"
NOTES = (
    "PPO: Pendulum-v1, 8 environments one after another in the learner's process on both sides (stable-baselines3's "
    "DummyVecEnv without its Monitor), 256 steps each, 10 epochs of minibatches of 64, two layers of 64 tanh units for "
    "the actor and for the critic, orthogonal weights, Adam; ratio = time of stable-baselines3 over LookAct's",
    "not equal: LookAct begins every update with fresh episodes, and whitens advantages over the update where "
    "stable-baselines3 does over each minibatch",
    "pictures: the tiny DINOv2 and BERT policy of vla-ppo on two 64x64 cameras, tables of pick-and-place in the "
    "policy's process (32 as vla-ppo has by default, and 8, where calls weigh more than numbers), eyes frozen; ratio = "
    "time of simulation and rendering alone over that of the whole rollout; three times as many repetitions",
)


@dataclass(frozen=True)
class Load:
    """How much is done in one repetition."""

    rows: int = 8
    steps: int = 256
    epochs: int = 10
    minibatch: int = 64
    world: str = "Pendulum-v1"
    picture_rows: tuple[int, ...] = (8, 32)
    picture_steps: int = 40


def measures(repetitions: int, load: Load | None = None) -> list[Callable[[], Row]]:
    """Functions that each give a row."""
    load = load or Load()
    return [
        partial(ppo_row, load, repetitions),
        # short, and drawing feels whatever else the machine does: more often
        *(partial(picture_row, replace(load, rows=rows), 3 * repetitions) for rows in load.picture_rows),
    ]


def ppo_row(load: Load, repetitions: int) -> Row:
    """Whole updates beside stable-baselines3's; LookAct's alone where that is missing."""
    name, ours = f"PPO, {load.rows} environments", (learns, (load,))
    if importlib.util.find_spec("stable_baselines3") is None:
        alone = race({"ours": ours}, repetitions=repetitions)
        return lone_row(name, alone, WITHOUT_SB3, _rate)
    times = race({"ours": ours, "against": (learns_by_sb3, (load,))}, repetitions=repetitions)
    return timed_row(name, times, FASTER, _rate)


def picture_row(load: Load, repetitions: int) -> Row:
    """A rollout with pictures beside its worlds alone."""
    name = f"rollout with pictures, {load.rows} environments"
    ways: dict[str, tuple[Prepare, Any]] = {"ours": (acts_by_sight, (load,)), "against": (only_simulates, (load,))}
    return timed_row(name, race(ways, repetitions=repetitions), SHARE, _rate)


def _rate(timing: Timing) -> str:
    return f"{timing.facts['env_steps'] / timing.median:.0f} steps/s"


def learns(load: Load) -> Work:
    """LookAct's updates, one a repetition."""
    worlds = InlineVectorEnv(partial(gymnasium.make, load.world), load.rows)
    state_size, action_size = (
        int(np.prod(space.shape or ())) for space in (worlds.observation_space, worlds.action_space)
    )
    policy = ControlMLP(MLPSpec(state_size, action_size))
    # ½e² with weight 1 is stable-baselines3's e² with weight ½
    ppo = PPO(gamma=0.9, epochs=load.epochs, minibatch=load.minibatch, value_clip=1e9, value_coef=1.0)
    learner = open_learner(policy, lr=1e-3, critic_lr=1e-3, normalise_state=False, scale_rewards=False, anchored=False)
    done = 0

    def work() -> Facts:
        nonlocal done
        done += 1
        told = improve(learner, worlds, ppo, steps=load.steps, seed=done, plan_episode=partial(_plan, done))
        return {
            "env_steps": load.steps * load.rows,
            "gradient_steps": told["optim/steps"],
            "return": told["rollout/return"],
        }

    return work


def learns_by_sb3(load: Load) -> Work:
    """The same by stable-baselines3."""
    from stable_baselines3 import PPO as Theirs
    from stable_baselines3.common.vec_env import DummyVecEnv

    worlds = DummyVecEnv([partial(gymnasium.make, load.world)] * load.rows)
    size = load.steps * load.rows
    model = Theirs(
        "MlpPolicy",
        worlds,
        n_steps=load.steps,
        batch_size=load.minibatch,
        n_epochs=load.epochs,
        gamma=0.9,
        learning_rate=1e-3,
        device="cpu",
        seed=0,
    )

    def work() -> Facts:
        before = model._n_updates
        model.learn(size, reset_num_timesteps=False, log_interval=10**9)
        rewards = model.rollout_buffer.rewards
        return {
            "env_steps": size,
            "gradient_steps": (model._n_updates - before) * size / load.minibatch,
            # an episode of Pendulum has 200 steps, and no Monitor sums them up
            "return": 200 * float(rewards.mean()),
        }

    return work


def acts_by_sight(load: Load) -> Work:
    """A policy that looks: simulation, rendering, features once a frame, decisions."""
    worlds = tables(load)
    spec = PolicySpec(cameras=("head", "wrist"), state_size=11, action_size=4)
    policy = make_vla(spec, VisionSpec(), TextSpec(), corpus=["put the red cube on the blue stand"], seed=0)
    policy.freeze_encoders()
    done = 0

    def work() -> Facts:
        nonlocal done
        done += 1
        noise = torch.randn(load.picture_steps, load.rows, 4, generator=torch_rng(0, done))
        roll_out(policy, worlds, noise=noise, plan_episode=partial(_plan, done))
        return {"env_steps": load.picture_steps * load.rows}

    return work


def only_simulates(load: Load) -> Work:
    """The same worlds with random actions of the same size."""
    worlds = tables(load)
    done = 0

    def work() -> Facts:
        nonlocal done
        done += 1
        actions = 0.2 * numpy_rng(0, done).normal(size=(load.picture_steps, load.rows, 4)).astype(np.float32)
        worlds.reset(partial(_plan, done))
        for step in actions:
            worlds.step(step)
        return {"env_steps": load.picture_steps * load.rows}

    return work


def tables(load: Load) -> InlineVectorEnv:
    """Tables with two cameras, in this process."""
    from lookact.envs.tabletop.env import Tabletop

    return InlineVectorEnv(partial(Tabletop, image_size=64, max_steps=load.picture_steps), load.rows)


def _plan(update: int, row: int, episode: int) -> tuple[int, dict[str, Any]]:
    return derive(update, row, episode), {}
