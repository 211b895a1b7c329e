"""What nav-rloo teaches before any reward: looks into its rooms, and the navigator's demonstrations."""

from __future__ import annotations

from functools import partial

from lookact.algorithms.vlm_sft import Lessons
from lookact.envs.rooms.render import Camera
from lookact.recipes.rloo.config import Config
from lookact.tasks.navigation import make_demos, room_style


def lessons_of(cfg: Config) -> Lessons:
    """The supervised start as the config wants it."""
    return Lessons(
        start=cfg.warm_start,
        seed=cfg.seed,
        system=cfg.instructions,
        token_budget=cfg.learn.token_budget,
        style=room_style(cfg.world),
        camera=Camera.square(cfg.world.image_size, cfg.world.fov_degrees),
        demos=partial(make_demos, cfg.world, noise=cfg.warm_start.noise),
    )
