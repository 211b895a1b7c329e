"""world-duel's environments: made from settings, vectorised, and the seeds of their episodes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium

from lookact.envs.control.gym_control import make_gym_control
from lookact.envs.maniskill.env import ManiSkillTable
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.randomise import Randomisation
from lookact.envs.tabletop.two_arms import TwoArms
from lookact.envs.testbeds.memory_curtain import MemoryCurtain
from lookact.envs.testbeds.noisy_tv import noisy_table
from lookact.envs.vector.vector_env import InlineVectorEnv, VectorEnv
from lookact.recipes.world_duel.config import EnvConfig
from lookact.seeding import derive
from lookact.training.distributed import rank, world_size
from lookact.types import PlanEpisode

VectorEnvs = VectorEnv | InlineVectorEnv


def env_maker(env: EnvConfig, task: str | None = None) -> Callable[[], gymnasium.Env[Any, Any]]:
    """What a worker process calls, without loading torch; unless with a task, no episode ends within its steps."""
    if env.is_outside:
        # a single picture serves as both
        shown = dict(zip(("head", "wrist"), (*env.shapes.cameras, env.shapes.cameras[0])))
        how: dict[str, Any] = {"image_size": env.image_size, "max_steps": env.steps_per_episode + 2, "cameras": shown}
        return functools.partial(make_gym_control, env.name, instruction=env.instruction, **how)
    if env.name == "memory_curtain":
        steps = env.steps_per_episode + 2
        return functools.partial(MemoryCurtain, image_size=env.image_size, max_steps=steps, point=task is not None)
    if env.name == "maniskill":
        return functools.partial(ManiSkillTable, **table_settings(env))
    make = {"noisy_tv": noisy_table, "two_arms": TwoArms}.get(env.name, Tabletop)
    settings = table_settings(env) | ({"max_steps": env.steps_per_episode} if task else {})
    return functools.partial(make, task=task or "reach", terminate_on_success=task is not None, **settings)


def table_settings(env: EnvConfig) -> dict[str, Any]:
    return {
        "control": env.control,
        "image_size": env.image_size,
        "max_steps": env.steps_per_episode + 2,
        "randomise": Randomisation(env.appearance, env.background, env.light, env.camera, env.clutter),
        "distractors": env.distractors,
    }


def make_envs(env: EnvConfig, task: str | None = None) -> VectorEnvs:
    """This process's vector environment."""
    if not env.workers:
        return InlineVectorEnv(env_maker(env, task), env.num_envs)
    return VectorEnv(env_maker(env, task), env.num_envs, workers=min(env.workers, env.num_envs))


def plan_episodes(seed: int, split: str, number: int, scene_reuse: int, *, together: bool = False) -> PlanEpisode:
    """Seeds of every row's `number`-th episode of a split; rows are counted over all processes if `together`.

    A row's scene stays for `scene_reuse` episodes; the poses of objects and arm differ each time.
    """

    def plan(row: int, episode: int) -> tuple[int, dict[str, Any]]:
        place = row * world_size() + rank() if together else row
        turn = number + episode
        scene = derive(seed, split, "scene", place, turn // scene_reuse)
        return derive(seed, split, place, turn), {"scene_seed": scene}

    return plan
