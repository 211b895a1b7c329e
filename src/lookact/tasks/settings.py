"""Settings of the tasks; loads no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lookact.config import setting
from lookact.envs.rooms.scene import CLASSES
from lookact.envs.rooms.wordings import QUESTIONS, TYPES


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
