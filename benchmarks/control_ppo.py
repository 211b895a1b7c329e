"""PPO as vla-ppo runs it beside stable-baselines3, and a rollout with pictures beside its simulation alone."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.report import Aim, Row, lone_row, timed_row
from benchmarks.timing import Facts, Prepare, Timing, Work, race
from lookact.algorithms.control_ppo import collect_experience, open_learner
from lookact.envs.vector.vector_env import InlineVectorEnv
from lookact.models.vla.policy import VLA
from lookact.recipes.vla_ppo.config import PRESETS
from lookact.recipes.vla_ppo.task import open_policy, table_maker
from lookact.recipes.vla_ppo.train import ppo_update
from lookact.rollout.vector_rollout import collect_rollout
from lookact.seeding import derive, numpy_rng, torch_rng
from lookact.training.settings import PPO

RECIPE = PRESETS["small"]
FASTER, NO_SLOWER, SHARE = Aim(1.5, at_least=True), Aim(1.0, at_least=True), Aim(0.6, at_least=True)
WITHOUT_SB3 = "not installed: pip install 'lookact[bench]'"
NOTES = (
    "PPO: updates of vla-ppo, preset small: its policy (tiny DINOv2 and BERT, frozen, and the fusion transformer that "
    "learns), its tables with two 64x64 cameras, its settings, one after another in the learner's process on both "
    "sides; stable-baselines3's PPO trains the very same network through a policy class of its own; ratio = time of "
    "stable-baselines3 over LookAct's",
    "PPO, frames in the buffer: as stable-baselines3 comes, which keeps what the environments show and has it encoded "
    "again in every epoch; LookAct keeps the frozen encoder's features. PPO, features in the buffer: "
    "stable-baselines3 is given features in place of frames by a wrapper around its environments: what is left is the "
    "loop",
    "not equal: LookAct begins every update with fresh episodes, and whitens advantages over the update where "
    "stable-baselines3 does over each minibatch",
    "pictures: vla-ppo's policy and tables as above (32 tables as vla-ppo has by default, and 8, where calls weigh "
    "more than numbers); ratio = time of simulation and rendering alone over that of the whole rollout; three times "
    "as many repetitions",
)


@dataclass(frozen=True)
class Load:
    """How much is done in one repetition."""

    rows: int = RECIPE.learn.num_envs
    steps: int = RECIPE.learn.rollout_steps
    epochs: int = RECIPE.ppo.epochs
    minibatch: int = RECIPE.ppo.minibatch
    picture_rows: tuple[int, ...] = (8, 32)
    picture_steps: int = 40


def measures(repetitions: int, load: Load | None = None) -> list[Callable[[], Row]]:
    """Functions that each give a row."""
    load = load or Load()
    return [
        partial(ppo_row, load, repetitions, encode_once=False),
        partial(ppo_row, load, repetitions, encode_once=True),
        # short, and drawing feels whatever else the machine does: more often
        *(partial(picture_row, replace(load, rows=rows), 3 * repetitions) for rows in load.picture_rows),
    ]


def ppo_row(load: Load, repetitions: int, *, encode_once: bool) -> Row:
    """Whole updates beside stable-baselines3's; LookAct's alone where that is missing."""
    name, ours = f"PPO, {'features' if encode_once else 'frames'} in the buffer", (learns, (load,))
    if importlib.util.find_spec("stable_baselines3") is None:
        alone = race({"ours": ours}, repetitions=repetitions)
        return lone_row(name, alone, WITHOUT_SB3, _rate)
    times = race({"ours": ours, "against": (learns_by_sb3, (load, encode_once))}, repetitions=repetitions)
    return timed_row(name, times, NO_SLOWER if encode_once else FASTER, _rate)


def picture_row(load: Load, repetitions: int) -> Row:
    """A rollout with pictures beside its simulation alone."""
    name = f"rollout with pictures, {load.rows} environments"
    ways: dict[str, tuple[Prepare, Any]] = {"ours": (acts_by_sight, (load,)), "against": (only_simulates, (load,))}
    return timed_row(name, race(ways, repetitions=repetitions), SHARE, _rate)


def _rate(timing: Timing) -> str:
    return f"{timing.facts['env_steps'] / timing.median:.0f} steps/s"


def recipe_policy() -> VLA:
    """vla-ppo's policy with its encoders frozen, as reward teaches it; untrained."""
    policy = open_policy(RECIPE.model, RECIPE.env, seed=0)
    policy.freeze_encoders()
    return policy


def learns(load: Load) -> Work:
    """LookAct's updates, one a repetition."""
    learner = open_learner(
        recipe_policy(), lr=1e-4, critic_lr=1e-4, normalise_state=False, scale_rewards=False, reference=False
    )
    envs, ppo = InlineVectorEnv(table_maker(RECIPE.env), load.rows), settings(load)
    done = 0

    def work() -> Facts:
        nonlocal done
        done += 1
        plan = partial(_plan, done)
        rollout = collect_experience(learner.policy, envs, steps=load.steps, seed=done, plan_episode=plan)
        told = ppo_update(learner, rollout, ppo, seed=derive(done, "shuffle"))
        return {"env_steps": load.steps * load.rows, "gradient_steps": told["optim/steps"]}

    return work


def learns_by_sb3(load: Load, encode_once: bool) -> Work:
    """The same by stable-baselines3."""
    from benchmarks.control_sb3 import make_ppo

    size, ppo = load.steps * load.rows, settings(load)
    sizes: dict[str, Any] = {"rows": load.rows, "steps": load.steps, "lr": 1e-4, "encode_once": encode_once}
    model = make_ppo(recipe_policy(), table_maker(RECIPE.env), ppo, **sizes)

    def work() -> Facts:
        before = model._n_updates
        model.learn(size, reset_num_timesteps=False, log_interval=10**9)
        return {"env_steps": size, "gradient_steps": (model._n_updates - before) * -(-size // load.minibatch)}

    return work


def settings(load: Load) -> PPO:
    """The recipe's, with errors of the value squared as stable-baselines3 has them, and every epoch taken."""
    sizes: dict[str, Any] = {"epochs": load.epochs, "minibatch": load.minibatch}
    return replace(RECIPE.ppo, value_loss="huber", value_clip=1e9, max_kl=None, **sizes)


def acts_by_sight(load: Load) -> Work:
    """A policy that looks: simulation, rendering, features once a frame, decisions."""
    envs = tables(load)
    policy = recipe_policy()
    done = 0

    def work() -> Facts:
        nonlocal done
        done += 1
        noise = torch.randn(load.picture_steps, load.rows, 4, generator=torch_rng(0, done))
        collect_rollout(policy, envs, noise=noise, plan_episode=partial(_plan, done))
        return {"env_steps": load.picture_steps * load.rows}

    return work


def only_simulates(load: Load) -> Work:
    """The same environments with random actions of the same size."""
    envs = tables(load)
    done = 0

    def work() -> Facts:
        nonlocal done
        done += 1
        actions = 0.2 * numpy_rng(0, done).normal(size=(load.picture_steps, load.rows, 4)).astype(np.float32)
        envs.reset(partial(_plan, done))
        for step in actions:
            envs.step(step)
        return {"env_steps": load.picture_steps * load.rows}

    return work


def tables(load: Load) -> InlineVectorEnv:
    """Tables with two cameras, in this process."""
    return InlineVectorEnv(table_maker(replace(RECIPE.env, max_steps=load.picture_steps)), load.rows)


def _plan(update: int, row: int, episode: int) -> tuple[int, dict[str, Any]]:
    return derive(update, row, episode), {}
