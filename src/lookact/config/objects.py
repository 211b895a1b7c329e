"""Other people's modules and what is in them, by where they are imported from: MODULE:NAME or FILE.py:NAME."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from lookact.errors import ConfigError

TASK_GROUP = "lookact.tasks"
"""The entry points that other packages offer tasks under."""
_FROM_FILES: set[str] = set()
"""Names of the modules that were loaded from files: one may take another's place."""


def load_object(path: str) -> Any:
    """What MODULE:NAME or FILE.py:NAME names; whatever goes wrong is one line."""
    module_name, _, name = path.rpartition(":")
    module = load_module(module_name)
    if not hasattr(module, name):
        raise ConfigError(f"{path}: {module_name} has no {name or 'name after the colon'}: write MODULE:NAME")
    return getattr(module, name)


def load_module(place: str) -> Any:
    """The module MODULE or FILE.py; whatever goes wrong is one line."""
    try:
        return load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{place}: there is no module {error.name}: check the name, or install what has it"
        ) from error
    except ConfigError:
        raise
    except Exception as error:
        told = " ".join(str(error).split())
        raise ConfigError(f"{place} could not be imported: {type(error).__name__}: {told}") from error


def load_file(path: Path) -> Any:
    """A Python file as a module of its own name; like a script's, its folder is searched for modules, though last."""
    if not path.is_file():
        raise ConfigError(f"{path} does not exist: check the path")
    path, name = path.resolve(), path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    if (known is not None and name not in _FROM_FILES) or name in sys.stdlib_module_names:
        raise ConfigError(f"{path.name}: Python has another module of the name {name}: rename the file")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    # other processes find what it defines by its name
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    _FROM_FILES.add(name)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def offered(group: str) -> dict[str, str]:
    """What other installed packages offer under a group of entry points: each name and where it is imported from."""
    return _offered(group, tuple(sys.path))


@functools.cache
def _offered(group: str, places: tuple[str, ...]) -> dict[str, str]:
    return {entry.name: entry.value for entry in entry_points(group=group)}
