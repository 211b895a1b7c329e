"""Settings of the tasks; loads no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeGuard

from lookact.config import setting
from lookact.envs.rooms.scene import CLASSES
from lookact.envs.rooms.wordings import QUESTIONS, TYPES

Overrides = dict[str, str]
"""Dotted settings of a recipe to their values, as the command line takes them; a recipe passes over those it lacks."""
GRID_DEBUG: Overrides = {
    "sampling.max_tokens": "16",
    "sampling.min_action_tokens": "1",
    "vision_pretraining.rooms": "30",
    "vision_pretraining.epochs": "1",
    "sft.demonstrations": "60",
    "sft.epochs": "2",
    "evaluation.final_episodes": "8",
}
GRID_SMALL: Overrides = GRID_DEBUG | {
    "vision_pretraining.rooms": "500",
    "vision_pretraining.epochs": "4",
    "sft.demonstrations": "2000",
    "sft.epochs": "3",
    "learn.iterations": "60",
    "learn.loss_on": "reply",
    "evaluation.final_episodes": "384",
}


@dataclass(frozen=True)
class NavigationConfig:
    """Which rooms, how hard, and what is paid."""

    scenes: tuple[str, ...] = setting(
        (), help="ARKitScenes folders; none: rooms are generated on the spot", exists=True
    )
    image_size: int = setting(96, help="pixels a side, a multiple of 32", least=32)
    fov_degrees: float = setting(90.0, help="horizontal field of view", above=0, below=180)
    max_turns: int = setting(10, help="turns until an episode is cut off", least=1)
    objects: tuple[int, int] = setting((4, 8), help="fewest and most objects in a generated room", least=1)
    classes: tuple[str, ...] = setting(CLASSES, help="object classes in generated rooms")
    side: tuple[float, float] = setting(
        (4.0, 6.5), help="shortest and longest side of a generated room, metres", above=0
    )
    success_distance: float = setting(1.0, help="metres from the object that count as reached", above=0)
    start_distance: tuple[float, float] = setting(
        (2.5, 6.0), help="shortest and longest walk to the goal, metres", least=0
    )
    questions: tuple[str, ...] = setting(QUESTIONS, help="wordings of the task; {label} is the object")
    progress_weight: float = setting(0.0, help="pay for the share of the way covered, beside 1 for arriving", least=0)

    factory: ClassVar[str] = "lookact.tasks.navigation:make_navigation"


@dataclass(frozen=True)
class SpatialVQAConfig:
    """Which rooms, which questions, and how they are put."""

    scenes: tuple[str, ...] = setting(
        (), help="ARKitScenes folders to learn in; none: rooms are generated on the spot", exists=True
    )
    per_type: int = setting(4, help="questions of each type about a recorded scene", least=1)
    types: tuple[str, ...] = setting(TYPES, help="VSI-Bench's question types that are asked")
    prompts: Literal["vsi", "brief"] = setting("vsi", help="questions as VSI-Bench puts them, or in very few words")
    image_size: int = setting(96, help="pixels a side, a multiple of 32", least=32)
    fov_degrees: float = setting(90.0, help="horizontal field of view", above=0, below=180)
    max_turns: int = setting(6, help="turns, the last of which must answer", least=1)
    objects: tuple[int, int] = setting((4, 8), help="fewest and most objects in a generated room", least=1)
    classes: tuple[str, ...] = setting(CLASSES, help="object classes in generated rooms")
    side: tuple[float, float] = setting(
        (4.0, 6.5), help="shortest and longest side of a generated room, metres", above=0
    )
    shapes: tuple[str, ...] = setting(("rectangle", "L"), help="floor plans of generated rooms")

    factory: ClassVar[str] = "lookact.tasks.spatial_vqa:make_spatial_vqa"


def is_spatial_vqa(env: object) -> TypeGuard[SpatialVQAConfig]:
    """Whether an environment's settings are those of spatial VQA; a recipe's `env` may be any task's."""
    return isinstance(env, SpatialVQAConfig)


@dataclass(frozen=True)
class FrozenLakeConfig:
    """Gymnasium's FrozenLake, seen as a picture."""

    layout: Literal["random", "4x4", "8x8"] = setting("random", help="random maps, or Gymnasium's own")
    size: int = setting(4, help="cells a side of a random map", least=2, most=12)
    frozen: float = setting(0.8, help="share of cells of a random map that are ice", above=0, most=1)
    slippery: bool = setting(False, help="the player slides aside in two of three moves")
    max_turns: int = setting(16, help="turns until an episode is cut off", least=1)

    presets: ClassVar[dict[str, Overrides]] = {"debug": GRID_DEBUG, "small": GRID_SMALL}

    @property
    def image_size(self) -> int:
        return 32 * (self.size if self.layout == "random" else int(self.layout[0]))

    factory: ClassVar[str] = "lookact.tasks.grid:frozen_lake_task"


@dataclass(frozen=True)
class MiniGridConfig:
    """A level of MiniGrid, seen whole from above."""

    level: str = setting("MiniGrid-DoorKey-5x5-v0", help="a level's Gymnasium id")
    cells: int = setting(5, help="cells a side of the level", least=3)
    max_turns: int = setting(24, help="turns until an episode is cut off", least=1)

    presets: ClassVar[dict[str, Overrides]] = {"debug": GRID_DEBUG, "small": GRID_SMALL}

    @property
    def image_size(self) -> int:
        return 32 * self.cells

    factory: ClassVar[str] = "lookact.tasks.grid:minigrid_task"
