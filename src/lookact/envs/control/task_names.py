"""What a control task's name means, told without importing a simulator."""

from __future__ import annotations

import re

from lookact.config.objects import TASK_GROUP, offered

METAWORLD = re.compile(r"(?:metaworld[_-])?([a-z]+(?:-[a-z]+)*?)(?:-v([0-9]))?")

DEFORMABLE = "deformable/"


def is_tabletop(task: str) -> bool:
    """Whether it is one of the arm's at the table."""
    return task.startswith("tabletop/") or task == "lookact/Tabletop-v0"


def is_metaworld(task: str) -> bool:
    """Whether it is written as MetaWorld's are: drawer-open-v3, metaworld_drawer-open, drawer-open."""
    return METAWORLD.fullmatch(task) is not None and not is_outside(task)


def is_outside(task: str) -> bool:
    """Whether it is imported: MODULE:NAME, FILE.py:NAME or an entry point of another package."""
    return ":" in task or task in offered(TASK_GROUP)


def packages_of(task: str) -> tuple[str, ...]:
    """The packages, beyond the base install, that a task needs."""
    if is_metaworld(task):
        return ("mujoco", "metaworld")
    return ("mujoco",) if is_tabletop(task) or task.startswith(DEFORMABLE) else ()
