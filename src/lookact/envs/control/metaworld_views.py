"""Cameras and colours under which MetaWorld's tasks can be judged from a picture, and goals in words of what is seen.

From MetaWorld's own cameras the arm often hides what matters, and a wooden cube on a wooden table is hardly seen
(RL-VLM-F, arXiv:2402.03681, recolours it too). Only pictures change: physics, states and rewards stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lookact.envs.control.task_names import METAWORLD

Triple = tuple[float, float, float]
ORANGE, GREEN, BLUE = (1.0, 0.5, 0.05), (0.05, 0.8, 0.1), (0.05, 0.3, 1.0)


@dataclass(frozen=True)
class View:
    """Where the camera stands, what it looks at, how wide, and which bodies are painted."""

    eye: Triple
    target: Triple
    goal: str
    """Completes "The goal is ..."."""
    colours: Mapping[str, Triple] = field(default_factory=dict)
    """By the body's name."""
    fovy: float = 56.0
    """Degrees: wide enough that the gripper is seen wherever random actions take it, nearly always."""


FRONT, FAR = (0.6, 0.2, 0.55), (0.45, 1.2, 0.5)
"""Beside the arm, and across the table from it."""
DRAWER = (0.0, 0.64, 0.18)
VIEWS = {
    "sweep-into": View(
        FAR, (0.0, 0.73, 0.13), "to move the green cube into the square hole in the table", {"obj": GREEN}
    ),
    "soccer": View(
        (0.55, 1.0, 0.6), (0.0, 0.68, 0.13), "to move the orange ball into the goal", {"soccer_ball1": ORANGE}
    ),
    "drawer-open": View(FRONT, DRAWER, "to pull the orange drawer open", {"drawer_link": ORANGE}),
    "drawer-close": View(FRONT, DRAWER, "to push the orange drawer shut", {"drawer_link": ORANGE}),
    "window-open": View(
        (0.55, 0.15, 0.6), (0.0, 0.7, 0.2), "to slide the orange pane to the right", {"windowb_a": ORANGE}
    ),
    "button-press": View((0.6, 0.3, 0.5), (0.0, 0.68, 0.2), "to push the blue button into the box", {"button": BLUE}),
    "door-open": View((-0.7, 0.1, 0.75), (-0.05, 0.7, 0.15), "to swing the orange door open", {"door_link": ORANGE}),
    "push": View(FAR, (0.0, 0.7, 0.11), "to push the blue puck onto the green dot", {"obj": BLUE}),
    "handle-press": View((0.6, 0.25, 0.5), (0.0, 0.7, 0.2), "to press the orange handle down", {"handle_link": ORANGE}),
}


def view_of(task: str) -> View | None:
    """The view of a MetaWorld task by any of its names; None where it has none of its own."""
    found = METAWORLD.fullmatch(task)
    return VIEWS.get(found[1]) if found else None
