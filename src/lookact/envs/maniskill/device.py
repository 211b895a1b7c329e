"""The render device, chosen before SAPIEN is imported: Vulkan ignores `CUDA_VISIBLE_DEVICES` and is initialised once.

The process with `LOCAL_RANK` n renders on the n-th GPU of `CUDA_VISIBLE_DEVICES`. Drivers take its physical index, from
`VK_DEVICE_INDEX`, `SAPIEN_DEVICE_INDEX` and `EGL_DEVICE_ID`; SAPIEN takes CUDA's index among the visible ones. Without
a GPU, Mesa's CPU driver (lavapipe, 25 or newer) renders.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from lookact.errors import ConfigError, EnvError

VARIABLES = ("VK_DEVICE_INDEX", "SAPIEN_DEVICE_INDEX", "EGL_DEVICE_ID")
ABSENT = 'ManiSkill is not installed: pip install "lookact[maniskill,robot]", or make test-maniskill for all it needs'
NO_DRIVER = (
    "no Vulkan driver here that SAPIEN can draw with: install the GPU's own, or for the CPU Mesa 25 or newer "
    "(make test-maniskill unpacks it; then: . .venv-maniskill/mesa/environment)"
)


@dataclass(frozen=True)
class Gpu:
    """A GPU by its two indices."""

    physical: int
    """Among all of the machine."""
    visible: int
    """Among those that CUDA shows to this process."""


def own_gpu(environment: Mapping[str, str], count: int) -> Gpu | None:
    """The GPU of this process, of `count` that CUDA shows; None where there is none."""
    if not count:
        return None
    # a launcher that shows each process a single GPU has chosen already
    visible = 0 if count == 1 else _number(environment, "LOCAL_RANK", environment.get("LOCAL_RANK", "0"))
    if visible >= count:
        raise ConfigError(f"LOCAL_RANK is {visible} with {count} GPUs in view: start one process a GPU")
    shown = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if not shown:
        return Gpu(visible, visible)
    return Gpu(_number(environment, "CUDA_VISIBLE_DEVICES", shown[visible]), visible)


def claim_gpu(environment: MutableMapping[str, str], gpu: Gpu | None, *, imported: bool) -> None:
    """Set the drivers' variables; an error if SAPIEN is `imported` and they are set otherwise, or not at all."""
    wanted = {} if gpu is None else {name: str(gpu.physical) for name in VARIABLES}
    wrong = [name for name, value in wanted.items() if environment.get(name) != value]
    if wrong and imported:
        raise EnvError(
            f"sapien was imported before GPU {wanted[wrong[0]]} was chosen ({wrong[0]} is "
            f"{environment.get(wrong[0], 'not set')}): make the environment, or call prepare(), before importing sapien"
        )
    environment.update(wanted)


def prepare() -> str:
    """Choose the GPU, import SAPIEN, and return the render device: `cuda:0` by CUDA's index, or `cpu`."""
    if importlib.util.find_spec("mani_skill") is None or importlib.util.find_spec("sapien") is None:
        raise EnvError(ABSENT)
    import torch

    gpu = own_gpu(os.environ, torch.cuda.device_count())
    claim_gpu(os.environ, gpu, imported="sapien" in sys.modules)
    # a thread a core, Mesa's default, costs more than it saves for images this small
    os.environ.setdefault("LP_NUM_THREADS", "0")
    render_device()
    return "cpu" if gpu is None else f"cuda:{gpu.visible}"


def render_device() -> str:
    """SAPIEN's summary of the render device."""
    with warnings.catch_warnings():
        # SAPIEN brings its own Vulkan loader
        warnings.filterwarnings("ignore", message="Failed to find system libvulkan")
        from sapien import render

    try:
        return str(render.get_device_summary())
    except RuntimeError as error:
        raise EnvError(NO_DRIVER) from error


def _number(environment: Mapping[str, str], name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name} is {environment.get(name)!r}: name GPUs by number, as Vulkan does") from None
