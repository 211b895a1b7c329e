"""Objects of other people's modules, by where they are imported from: MODULE:NAME or FILE.py:NAME."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from lookact.errors import ConfigError


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
