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
    "vision_pretraining.epochs": "10",
    "sft.demonstrations": "1000",
    "sft.epochs": "3",
    "sft.lr": "2e-3",
    "sft.noise": "0.15",
    "learn.iterations": "40",
    "learn.loss_on": "reply",
    "evaluation.final_episodes": "200",
}
GRID_RLOO: Overrides = {
    "learn.groups": "16",
    "learn.group_size": "6",
    "learn.credit": "anchor",
    "learn.gamma": "0.95",
    "learn.lr": "4e-4",
    "learn.epochs": "4",
    "learn.negative_advantage_weight": "1",
}
GRID_PPO: Overrides = {"learn.lr": "3e-4", "critic.coef": "0.1", "credit.gamma_turn": "0.95"}
GRID: dict[str, Overrides] = {"debug": GRID_DEBUG, "small": GRID_SMALL, "small rloo": GRID_RLOO, "small ppo": GRID_PPO}
"""By preset, and by preset and recipe."""
DOORKEY_SMALL: Overrides = GRID_SMALL | {
    "vision_pretraining.rooms": "1200",
    "vision_pretraining.epochs": "4",
    "sft.demonstrations": "1200",
    "sft.epochs": "4",
}


@dataclass(frozen=True)
class NavigationConfig:
    """Which rooms, how hard, and what is paid."""

    scenes: tuple[str, ...] = setting(
        (), help="ARKitScenes folders, or scene notes (.json); none: rooms are generated on the spot", exists=True
    )
    scene_ids: tuple[str, ...] = setting((), help="of `scenes` only those with these ids")
    held_out_scenes: float = setting(
        0.0, help="share of `scenes` that is evaluated in and not trained in", least=0, below=1
    )
    train_on_test: bool = setting(False, help="allow training in scenes of VSI-Bench")
    generated_share: float = setting(
        0.0, help="share of training in generated rooms beside `scenes`, vision pretraining included", least=0, most=1
    )
    routes: str | None = setting(
        None, help="a file of VSI-Bench's rows: its routes are walked in `scenes`", exists=True
    )
    image_size: int = setting(96, help="pixels a side, a multiple of 32", least=32)
    fov_degrees: float = setting(90.0, help="horizontal field of view", above=0, below=180)
    max_turns: int = setting(10, help="turns until an episode is cut off", least=1)
    objects: tuple[int, int] = setting((4, 8), help="fewest and most objects in a generated room", least=1)
    classes: tuple[str, ...] = setting(CLASSES, help="object classes in generated rooms, and what is asked for")
    side: tuple[float, float] = setting(
        (4.0, 6.5), help="shortest and longest side of a generated room, metres", above=0
    )
    success_distance: float = setting(1.0, help="metres from the object that count as reached", above=0)
    start_distance: tuple[float, float] = setting(
        (2.5, 6.0), help="shortest and longest walk to the goal, metres", least=0
    )
    questions: tuple[str, ...] = setting(QUESTIONS, help="wordings of the task; {label} is the object")
    progress_weight: float = setting(0.0, help="pay for the share of the way covered, beside 1 for arriving", least=0)
    blind: bool = setting(False, help="blank every picture: how far does it go without seeing?")

    factory: ClassVar[str] = "lookact.tasks.navigation:make_navigation"


@dataclass(frozen=True)
class SpatialVQAConfig:
    """Which rooms, which questions, and how they are put."""

    scenes: tuple[str, ...] = setting(
        (), help="ARKitScenes folders, or scene notes (.json); none: rooms are generated on the spot", exists=True
    )
    scene_ids: tuple[str, ...] = setting((), help="of `scenes` only those with these ids")
    held_out_scenes: float = setting(
        0.0, help="share of `scenes` that is evaluated in and not trained in", least=0, below=1
    )
    train_on_test: bool = setting(False, help="allow training in scenes of VSI-Bench")
    per_type: int = setting(4, help="questions of each type about a recorded scene", least=1)
    types: tuple[str, ...] = setting(
        TYPES, help="VSI-Bench's question types that are asked; in generated rooms one named twice, twice as often"
    )
    prompts: Literal["vsi", "brief"] = setting("vsi", help="questions as VSI-Bench puts them, or in very few words")
    paraphrase: bool = setting(False, help="learn from questions in several wordings, not in VSI-Bench's alone")
    image_size: int = setting(96, help="pixels a side, a multiple of 32", least=32)
    fov_degrees: float = setting(90.0, help="horizontal field of view", above=0, below=180)
    max_turns: int = setting(6, help="turns, the last of which must answer", least=1)
    objects: tuple[int, int] = setting((4, 8), help="fewest and most objects in a generated room", least=1)
    classes: tuple[str, ...] = setting(CLASSES, help="object classes in generated rooms")
    side: tuple[float, float] = setting(
        (4.0, 6.5), help="shortest and longest side of a generated room, metres", above=0
    )
    shapes: tuple[str, ...] = setting(("rectangle", "L"), help="floor plans of generated rooms")
    distance_choices: int = setting(
        4, help="options of generated questions for what is closest; VSI-Bench has 4", least=2
    )
    start_as_asked: bool = setting(
        False, help="questions about directions begin where they say that one stands, facing what they say one faces"
    )
    blind: bool = setting(False, help="blank every picture: how far does it go without seeing?")

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
    random_start: bool = setting(False, help="begin on any ice from which the gift can be reached, not in the corner")
    cell_pixels: int = setting(16, help="pixels a side of a cell, a multiple of 16", least=16)
    max_turns: int = setting(16, help="turns until an episode is cut off", least=1)
    labels: bool = setting(True, help="pretrain vision by the cells' labels; false: self-supervised, on frames")
    blind: bool = setting(False, help="blank every picture: how far does it go without seeing?")

    presets: ClassVar[dict[str, Overrides]] = GRID

    @property
    def image_size(self) -> int:
        return self.cell_pixels * (self.size if self.layout == "random" else int(self.layout[0]))

    factory: ClassVar[str] = "lookact.tasks.grid:frozen_lake_task"


@dataclass(frozen=True)
class MiniGridConfig:
    """A level of MiniGrid, seen whole from above."""

    level: str = setting("MiniGrid-DoorKey-6x6-v0", help="a level's Gymnasium id")
    cells: int = setting(6, help="cells a side of the level", least=3)
    cell_pixels: int = setting(16, help="pixels a side of a cell, a multiple of 16", least=16)
    max_turns: int = setting(24, help="turns until an episode is cut off", least=1)
    labels: bool = setting(True, help="pretrain vision by the cells' labels; false: self-supervised, on frames")
    blind: bool = setting(False, help="blank every picture: how far does it go without seeing?")

    presets: ClassVar[dict[str, Overrides]] = GRID | {"small": DOORKEY_SMALL}

    @property
    def image_size(self) -> int:
        return self.cell_pixels * self.cells

    factory: ClassVar[str] = "lookact.tasks.grid:minigrid_task"
