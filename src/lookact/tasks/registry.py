"""Finds a task: by its name, by an entry point of another package, or by where it is imported from. Loads no torch."""

from __future__ import annotations

import dataclasses
import functools
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar

from lookact.config.objects import load_object
from lookact.config.values import unknown
from lookact.errors import ConfigError

if TYPE_CHECKING:
    from lookact.protocols import Task

TASKS = {
    "navigation": "lookact.tasks.settings:NavigationConfig",
    "spatial-vqa": "lookact.tasks.settings:SpatialVQAConfig",
    "frozen-lake": "lookact.tasks.settings:FrozenLakeConfig",
    "minigrid": "lookact.tasks.settings:MiniGridConfig",
}
"""Each task's settings: a frozen dataclass with `image_size`, and `factory`, the import path of what makes the task."""
GROUP = "lookact.tasks"
"""The entry points that other packages offer tasks under."""
NEEDED = ("make_env", "specs", "report", "image_size")


@dataclasses.dataclass(frozen=True)
class ImportedTask:
    """The environment's settings of a task that has none of its own; a subclass names where it is imported from."""

    path: ClassVar[str] = ""

    @property
    def image_size(self) -> int:
        return self.make_task(0).image_size

    def make_task(self, seed: int) -> Task:
        task: Task = load_object(self.path)
        return task


def make_task(env: Any, seed: int) -> Task:
    """The task of an environment's settings: by their own `make_task(seed)`, or by `factory(settings, seed)`."""
    task: Task = env.make_task(seed) if hasattr(env, "make_task") else load_object(env.factory)(env, seed)
    return task


def find_task(name: str) -> type:
    """The settings class of the task that `name` names: one of ours, an entry point, or MODULE:NAME or FILE.py:NAME."""
    offered = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    path = TASKS.get(name) or offered.get(name)
    if path is None and ":" not in name:
        raise unknown("task", name, [*TASKS, *offered])
    return settings_class(path or name)


@functools.cache
def settings_class(path: str) -> type:
    """The settings class at an import path, or one made for the task that stands there."""
    found = load_object(path)
    if (
        isinstance(found, type)
        and dataclasses.is_dataclass(found)
        and (hasattr(found, "make_task") or hasattr(found, "factory"))
    ):
        return found
    missing = [name for name in NEEDED if not hasattr(found, name)]
    if isinstance(found, type) or missing:
        lacks = f"it has no {missing[0]}" if missing else "it is a class without make_task or factory"
        raise ConfigError(f"{path} is no task: {lacks}; see docs/tutorials/own-task.md")
    return dataclasses.dataclass(frozen=True)(type("ImportedTask", (ImportedTask,), {"path": path}))
