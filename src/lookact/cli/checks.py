"""What a machine can do, one function a question. Each answers quickly and raises only what `doctor` catches."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lookact.cli.launch import cores

OK, BROKEN, ABSENT = "ok", "broken", "absent"
TESTED = ((3, 11), (3, 13))
"""The oldest and the newest Python that the tests run on."""
GIB = 2**30


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
