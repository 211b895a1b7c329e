"""Whether each extra is installed, and where a package alone is not enough, whether it works."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial

from lookact.cli.checks import ABSENT, BROKEN, OK, TESTED, Finding
from lookact.extras import EXTRAS, pip_install

SECONDS = 30
"""Longer than any healthy backend needs to draw one frame."""

DRAW_ONE_FRAME = """
import mujoco
model = mujoco.MjModel.from_xml_string('<mujoco><worldbody><light pos="0 0 3"/><geom size="1"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 32, 32)
renderer.update_scene(data)
assert renderer.render().max() > 0
"""

NAME_DRAWING_DEVICE = """
from lookact.envs.maniskill.device import drawing_device, prepare
prepare()
print(drawing_device().partition("GPU:")[2].splitlines()[0].strip())
"""


def packages(extra: str) -> Finding:
    """Versions, as installed: importing the heavy ones would take longer than all else here."""
    versions = {name: _version(name) for name in EXTRAS[extra].packages.values()}
    there = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    lacking = ", ".join(name for name, version in versions.items() if not version)
    if not lacking:
        return Finding(OK, there)
    return Finding(ABSENT, f"{there}, not {lacking}" if there else "not installed", pip_install(extra))


def robot() -> Finding:
    """Draws one frame with each backend, in a process of its own: a missing driver may end the process."""
    found = packages("robot")
    if found.state == OK:
        works = [backend for backend in ("egl", "osmesa") if _draws(backend)]
        if not works:
            return Finding(BROKEN, f"{found.detail}; no backend renders", "apt-get install libegl1 libgl1-mesa-dri")
        return Finding(OK, f"{found.detail}; renders with {' and '.join(works)}")
    if sys.version_info[:2] > TESTED[1]:
        return Finding(
            ABSENT, found.detail, "needs Python 3.11 to 3.13: mujoco and metaworld have no wheels for newer ones"
        )
    return found


def maniskill() -> Finding:
    """Asks SAPIEN, in a process of its own, which device it would draw with."""
    found = packages("maniskill")
    if found.state == ABSENT:
        return Finding(ABSENT, found.detail, f"{pip_install('maniskill', 'robot')}, or make test-maniskill")
    done = _run(NAME_DRAWING_DEVICE, {})
    if done is None or done.returncode:
        return Finding(
            BROKEN,
            f"{found.detail}; no Vulkan driver that draws: a GPU's own, or for the CPU Mesa 25 or newer",
            "make test-maniskill unpacks one: . .venv-maniskill/mesa/environment",
        )
    device = done.stdout.strip().splitlines()[-1]
    return Finding(OK, f"{found.detail}; draws with {device}{', on the CPU' if 'llvmpipe' in device else ''}")


EXTRA_CHECKS: Mapping[str, Callable[[], Finding]] = {
    **{name: partial(packages, name) for name in EXTRAS},
    "robot": robot,
    "maniskill": maniskill,
}


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _draws(backend: str) -> bool:
    done = _run(DRAW_ONE_FRAME, {"MUJOCO_GL": backend})
    return done is not None and done.returncode == 0


def _run(code: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str] | None:
    """The code in a process of its own; None if it can't be started or takes too long."""
    command, environment = [sys.executable, "-c", code], {**os.environ, **variables}
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
