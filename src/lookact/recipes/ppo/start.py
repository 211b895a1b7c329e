"""What vqa-ppo teaches before any reward: looks into its rooms, and demonstrations of looking around and answering."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from lookact.algorithms.vlm_sft import Lessons
from lookact.data.demos import Demo
from lookact.envs.rooms.render import Camera
from lookact.recipes.ppo.config import Config
from lookact.tasks.spatial_vqa import make_demos, room_style, training_rows
from lookact.types import EpisodeSpec


def lessons_of(cfg: Config) -> Lessons:
    """The supervised start as the config wants it."""
    return Lessons(
        start=cfg.warm_start,
        seed=cfg.seed,
        system=cfg.instructions,
        token_budget=cfg.learn.token_budget,
        style=room_style(cfg.world),
        camera=Camera.square(cfg.world.image_size, cfg.world.fov_degrees),
        demos=partial(expert_demos, cfg),
    )


def expert_demos(cfg: Config, plans: Sequence[EpisodeSpec]) -> Iterator[Demo]:
    """The looking-around expert's episodes, some of them hasty."""
    rows = training_rows(cfg.world, cfg.seed)
    return make_demos(cfg.world, plans, noise=cfg.warm_start.noise, haste=cfg.expert.haste, rows=rows)
