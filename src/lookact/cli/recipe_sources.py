"""Where recipes come from: LookAct's own, and from outside a Python file, a module, or another package's entry point.

A recipe from outside is one module with `Config`, a frozen dataclass, and `main(cfg, run)`; `PRESETS`, `preflight`,
`evaluate` and `collect` are as those of LookAct's own, where it has them.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lookact.config import objects
from lookact.config.objects import load_module
from lookact.errors import ConfigError

RECIPES = {
    "nav-rloo": "lookact.recipes.rloo.train",
    "vqa-ppo": "lookact.recipes.ppo.train",
    "vla-ppo": "lookact.recipes.vla_ppo.train",
    "pref-sac": "lookact.recipes.pref_sac.train",
    "world-duel": "lookact.recipes.world_duel.train",
}
"""Each recipe's loop. Beside it stand, without torch, its settings and its checks: config.py and preflight.py."""
GROUP = "lookact.recipes"
"""The entry points that other packages offer recipes under: a name and its module."""
GUIDE = "see docs/tutorials/own-recipe.md"


def offered() -> dict[str, str]:
    """Recipes of installed packages: each name and its module."""
    return {name: place.partition(":")[0] for name, place in objects.offered(GROUP).items()}


def outside_place(recipe: str) -> str | None:
    """FILE.py or the module that a word names; None where it is neither, nor an entry point."""
    if recipe.endswith(".py"):
        return recipe
    if module := offered().get(recipe):
        return module
    if not all(part.isidentifier() for part in recipe.split(".")):
        return None
    return recipe if "." in recipe or importlib.util.find_spec(recipe) is not None else None


def short_name(recipe: str) -> str:
    """What a recipe's runs are kept under: a file is called by its name alone."""
    return Path(recipe).stem if recipe.endswith(".py") else recipe


def load_outside(recipe: str, place: str) -> Any:
    """The module of a recipe from outside, with all that it must have."""
    module = load_module(place)
    config = getattr(module, "Config", None)
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise ConfigError(f"recipe {recipe} has no dataclass Config: give it one with its settings; {GUIDE}")
    if not config.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ConfigError(f"recipe {recipe}: Config can be changed: write @dataclass(frozen=True) above it")
    if not callable(getattr(module, "main", None)):
        raise ConfigError(f"recipe {recipe} has no main(cfg, run): give it one that trains; {GUIDE}")
    return module


def outside_settings(recipe: str, place: str, default_preset: str) -> Any:
    """Config and PRESETS of a recipe from outside; the defaults are its default preset unless it has one."""
    module = load_outside(recipe, place)
    presets = getattr(module, "PRESETS", {})
    if default_preset not in presets:
        try:
            presets = {default_preset: module.Config(), **presets}
        except TypeError as error:
            raise ConfigError(f"recipe {recipe}: {error}: give every setting of Config a default") from error
    return SimpleNamespace(Config=module.Config, PRESETS=presets)
