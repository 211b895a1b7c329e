"""Say what works on this machine, and what each extra of `pip install 'lookact[…]'` would enable.

✓ works, ✗ needs mending, – not installed and not needed yet.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lookact import __version__
from lookact.cli.launch import cores
from lookact.cli.output import say
from lookact.cli.parser import Arguments, Parser
from lookact.extras import BASE, EXTRAS, pip_install

OK, BROKEN, ABSENT = "ok", "broken", "absent"
EXAMPLES = ("lookact doctor", "lookact doctor --json")
SIGNS = {OK: "✓", BROKEN: "✗", ABSENT: "–"}
INDENT = 13
"""Where what is said of a name begins: after its sign and the longest name."""
WIDEST = 100
TESTED = ((3, 11), (3, 13))
"""The oldest and the newest Python that the tests run on."""
GIB = 2**30
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
from lookact.envs.maniskill.device import render_device, prepare
prepare()
print(render_device().partition("GPU:")[2].splitlines()[0].strip())
"""


def add_options(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print the findings as one JSON object")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    if arguments.json:
        say(json.dumps(report()))
        return
    say(f"LookAct {__version__} on this machine   ✓ works   ✗ needs mending   – not installed\n")
    for name, check in CHECKS.items():
        finding = examine(check)
        show(finding.state, name, finding.detail, finding.remedy)
    say("\nWhat is installed, and what it enables\n")
    show(OK, "base", listed(BASE))
    for name, check in EXTRA_CHECKS.items():
        finding = examine(check)
        # a missing extra: its remedy says so
        detail = "" if finding == Finding(ABSENT, "not installed", finding.remedy) else finding.detail
        show(finding.state, name, listed(EXTRAS[name].enables), detail, finding.remedy)


def report() -> dict[str, object]:
    """Everything that is found, by name."""
    machine = {name: dataclasses.asdict(examine(check)) for name, check in CHECKS.items()}
    extras = {
        name: {**dataclasses.asdict(examine(check)), "enables": EXTRAS[name].enables}
        for name, check in EXTRA_CHECKS.items()
    }
    return {"version": __version__, "machine": machine, "base": {"enables": BASE}, "extras": extras}


def examine(check: Callable[[], Finding]) -> Finding:
    """A check's answer; a check that fails is an answer too."""
    try:
        return check()
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return Finding(BROKEN, text[:200], "pip install --force-reinstall lookact, or make clean setup")


def listed(enabled: Sequence[str]) -> str:
    return " · ".join(enabled)


def show(state: str, name: str, *texts: str) -> None:
    """A sign and a name, and beside them each text from a line of its own; said at once, for checks take their time."""
    width = min(shutil.get_terminal_size().columns, WIDEST) - INDENT
    lines = [line for text in texts for line in textwrap.wrap(text, width, break_on_hyphens=False)]
    say(f"{SIGNS[state]} {name}".ljust(INDENT) + f"\n{' ' * INDENT}".join(lines))
    sys.stdout.flush()


@dataclass(frozen=True)
class Finding:
    """The answer to one question. Absent is fine until it is wanted; broken needs mending; ok may come with advice."""

    state: str
    detail: str
    remedy: str = ""


def system() -> Finding:
    """Linux is what LookAct is tested on; run folders are locked with fcntl, which Windows has not."""
    detail = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    if importlib.util.find_spec("fcntl") is None:
        return Finding(BROKEN, f"{detail}: it has no file locks (fcntl)", "use Linux, or WSL 2 on Windows")
    if platform.system() != "Linux":
        return Finding(OK, f"{detail}; tested on Linux only")
    if sys.version_info[:2] > TESTED[1]:
        return Finding(OK, f"{detail}; tested with 3.11 to 3.13")
    return Finding(OK, detail)


def cpu() -> Finding:
    """Cores, threads, and the widest vectors that torch's kernels use here."""
    import torch

    used, found = torch.get_num_threads(), cores()
    kind = torch.backends.cpu.get_cpu_capability()
    vectors = {"AVX512": "AVX-512", "DEFAULT": "no AVX2 (slow)", "NO AVX": "no AVX (slow)"}.get(kind, kind)
    detail = f"{_count(found, 'core')} with {vectors}, torch uses {_count(used, 'thread')}"
    return Finding(OK, detail) if used <= found else Finding(BROKEN, detail, f"set OMP_NUM_THREADS={found}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def memory() -> Finding:
    import psutil  # type: ignore[import-untyped]

    found = psutil.virtual_memory()
    detail = f"{found.available / GIB:.1f} of {found.total / GIB:.1f} GiB free"
    return Finding(OK, detail) if found.available > 2 * GIB else Finding(BROKEN, detail, "close other programs")


def disk() -> Finding:
    found = shutil.disk_usage(Path.cwd())
    detail = f"{found.free / GIB:.1f} GiB free here"
    return Finding(OK, detail) if found.free > 5 * GIB else Finding(BROKEN, detail, "free some, or use --out elsewhere")


def torch() -> Finding:
    """Its build and its devices, and whether the one fits the other."""
    import torch

    devices = ["cpu"]
    if torch.cuda.is_available():
        devices += [f"cuda:{index} {torch.cuda.get_device_name(index)}" for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    detail = f"{torch.__version__}, devices: {', '.join(devices)}"
    if len(devices) > 1:
        return Finding(OK, detail)
    return build_without_device(detail, torch.__version__, cuda=torch.version.cuda is not None, gpu=has_gpu())


def build_without_device(detail: str, version: str, *, cuda: bool, gpu: bool) -> Finding:
    """What to say of a torch that found no device but the CPU."""
    if gpu and cuda:
        return Finding(BROKEN, f"{detail}; there is a GPU it can't use", "update the driver: nvidia-smi tells its CUDA")
    release = version.partition("+")[0]
    if gpu:
        remedy = (
            f"pip install --force-reinstall --no-deps torch=={release} from an index with CUDA builds, such as PyPI"
        )
        return Finding(BROKEN, f"{detail}; there is a GPU, and this is the CPU's build", remedy)
    if cuda:
        remedy = (
            "to save them: a new environment, and first pip install torch=="
            f"{release} --index-url with the address of PyTorch's CPU index (docs/install.md)"
        )
        return Finding(OK, f"{detail}; {cuda_size() / GIB:.1f} GiB of CUDA libraries for no GPU", remedy)
    return Finding(OK, detail)


def has_gpu() -> bool:
    """Whether the system shows an NVIDIA GPU, whatever torch makes of it."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def cuda_size() -> int:
    """Bytes on disk of the packages that only a GPU needs."""
    needless = [
        found
        for found in importlib.metadata.distributions()
        if (found.name or "").lower().startswith(("nvidia-", "cuda-", "triton"))
    ]
    files = [Path(str(found.locate_file(file))) for found in needless for file in found.files or []]
    return sum(file.stat().st_size for file in files if file.is_file())


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
    return Finding(OK, f"{importlib.metadata.version('embreex')} casts rays")


CHECKS: Mapping[str, Callable[[], Finding]] = {
    "system": system,
    "cpu": cpu,
    "memory": memory,
    "disk": disk,
    "torch": torch,
    "embree": embree,
}


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
