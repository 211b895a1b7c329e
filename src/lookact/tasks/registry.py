"""Finds a task: by its name, by an entry point of another package, or by where it is imported from. Loads no torch."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, ClassVar

from lookact.config.objects import TASK_GROUP, load_object, offered
from lookact.config.values import unknown
from lookact.errors import ConfigError, LookActError
from lookact.tasks.remote_settings import remote_settings

if TYPE_CHECKING:
    from lookact.protocols import Task

TASKS = {
    "navigation": "lookact.tasks.settings:NavigationConfig",
    "spatial-vqa": "lookact.tasks.settings:SpatialVQAConfig",
    "frozen-lake": "lookact.tasks.settings:FrozenLakeConfig",
    "minigrid": "lookact.tasks.settings:MiniGridConfig",
}
"""Each task's settings: a frozen dataclass with `image_size`, and `factory`, the import path of what makes the task."""
GUIDE = "docs/tutorials/own-task.md"
_TRIED: set[type] = set()
"""The settings of other people's tasks that were tried out already."""
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
    if not hasattr(env, "make_task"):
        return load_object(env.factory)(env, seed)  # type: ignore[no-any-return]
    task: Task = env.make_task(seed)
    if type(env) not in _TRIED:
        try_out(task, getattr(env, "path", "") or type(env).__name__)
        _TRIED.add(type(env))
    return task


def try_out(task: Task, name: str) -> None:
    """Start an episode of another's task and take a random action in it; whatever goes wrong is one line."""
    try:
        spec, env, actor = task.specs(0, "check", groups=1)[0], task.make_env(), task.random_actor()
        seen, _ = env.reset(seed=spec.seed, options=spec.options)
        actor.begin(0, spec.seed)
        env.step(actor.act([0], [seen])[0].action)
        env.close()
    except LookActError as error:
        raise ConfigError(f"{name}: {error}") from error
    except Exception as error:
        told = " ".join(str(error).split())
        raise ConfigError(f"{name} does not run: {type(error).__name__}: {told}; see {GUIDE}") from error


def find_task(name: str) -> type:
    """The settings class of the task that `name` names: one of ours, an entry point, MODULE:NAME or FILE.py:NAME, or
    environment servers by their addresses."""
    if name.startswith(("http://", "https://")):
        return remote_settings(name)
    others = offered(TASK_GROUP)
    path = TASKS.get(name) or others.get(name)
    if path is None and name.endswith(".py"):
        raise ConfigError(f"task {name} is a file: say which of its names is the task, as in {name}:TASK")
    if path is None and ":" not in name:
        raise unknown("task", name, [*TASKS, *others])
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
        if hasattr(found, "make_env") and hasattr(found, "cameras"):
            raise ConfigError(f"{path} is a control task: recipes vla-ppo, pref-sac and world-duel take it")
        lacks = f"it has no {missing[0]}" if missing else "it is a class without make_task or factory"
        raise ConfigError(f"{path} is no task: {lacks}; see {GUIDE}")
    return dataclasses.dataclass(frozen=True)(type("ImportedTask", (ImportedTask,), {"path": path}))
