"""Finds a task: by its name, by an entry point of another package, or by where it is imported from. Loads no torch."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

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


def load_object(path: str) -> Any:
    """What MODULE:NAME or FILE.py:NAME names; whatever goes wrong is one line."""
    module_name, _, name = path.rpartition(":")
    try:
        module = load_file(Path(module_name)) if module_name.endswith(".py") else importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{path}: there is no module {error.name}: check the name, or install what has it") from error
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{path} could not be imported: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        raise ConfigError(f"{path}: {module_name} has no {name or 'name after the colon'}: write MODULE:NAME")
    return getattr(module, name)


def load_file(path: Path) -> Any:
    """A Python file as a module of its own name."""
    if not path.is_file():
        raise ConfigError(f"{path} does not exist: check the path")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    if path.stem in sys.modules and getattr(sys.modules[path.stem], "__file__", None) == str(path):
        return sys.modules[path.stem]
    module = importlib.util.module_from_spec(spec)
    # other processes find what it defines by its name
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
