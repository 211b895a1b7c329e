"""Pictures without a screen: a GL context by EGL or OSMesa, whichever works here.

MuJoCo picks its backend when it is imported and can't change its mind; here the choice is made when the first picture
is asked for. `MUJOCO_GL` decides where it is set.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib
import os
import platform
import weakref
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np

from lookact.errors import EnvError
from lookact.types import Image

PACKAGES = "apt-get install libegl1 libgl1 libgl1-mesa-dri, or libosmesa6"
EGL_PLATFORM_DEVICE = 0x313F
DEVICES = 16


class Renderer:
    """Draws square pictures of one model from its cameras."""

    def __init__(self, model: Any, size: int) -> None:
        model.vis.global_.offwidth = model.vis.global_.offheight = size
        # no shadows are drawn, and the map they would need takes 64 MB a world
        model.vis.quality.shadowsize = 0
        self.model, self.size = model, size
        self._context = make_context(size)
        self._context.make_current()
        self._drawer = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._drawer)
        self._scene = mujoco.MjvScene(model, maxgeom=model.ngeom + 8)
        for flag in (
            mujoco.mjtRndFlag.mjRND_SHADOW,
            mujoco.mjtRndFlag.mjRND_REFLECTION,
            mujoco.mjtRndFlag.mjRND_SKYBOX,
        ):
            self._scene.flags[flag] = 0
        self._option, self._viewpoint = mujoco.MjvOption(), mujoco.MjvCamera()
        self._viewpoint.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._frame = mujoco.MjrRect(0, 0, size, size)
        self._pixels = np.zeros((size, size, 3), np.uint8)
        # contexts must be freed before the backend's own exit handler takes the display away
        self._at_exit = functools.partial(_close, weakref.ref(self))
        atexit.register(self._at_exit)

    def draw(self, data: Any, cameras: tuple[str, ...]) -> dict[str, Image]:
        """(size, size, 3) from each camera."""
        self._context.make_current()
        pictures = {}
        for index, camera in enumerate(cameras):
            self._viewpoint.fixedcamid = self.model.camera(camera).id
            if index == 0:
                everything = mujoco.mjtCatBit.mjCAT_ALL.value
                mujoco.mjv_updateScene(self.model, data, self._option, None, self._viewpoint, everything, self._scene)
            else:
                mujoco.mjv_updateCamera(self.model, data, self._viewpoint, self._scene)
            mujoco.mjr_render(self._frame, self._scene, self._drawer)
            mujoco.mjr_readPixels(self._pixels, None, self._frame, self._drawer)
            # GL's first row is the lowest
            pictures[camera] = self._pixels[::-1].copy()
        return pictures

    def close(self) -> None:
        """Free the context; drawing afterwards is an error."""
        if self._context is not None:
            self._context.make_current()
            self._drawer.free()
            self._context.free()
            self._context = None
            atexit.unregister(self._at_exit)


def _close(reference: weakref.ref[Renderer]) -> None:
    if (renderer := reference()) is not None:
        renderer.close()


def make_context(size: int) -> Any:
    """A GL context of the chosen backend."""
    # Mesa's software driver starts a thread a core, which costs more than it saves for pictures as small as these
    os.environ.setdefault("LP_NUM_THREADS", "0")
    backend = choose_backend()
    try:
        return importlib.import_module(f"mujoco.{backend}").GLContext(size, size)
    except Exception as error:
        told = " ".join(str(error).split())
        raise EnvError(f"MuJoCo can't draw with {backend} ({told}): {PACKAGES}, or unset MUJOCO_GL") from error


def choose_backend() -> str:
    """The module of MuJoCo that makes contexts here."""
    asked = os.environ.get("MUJOCO_GL", "").lower()
    if platform.system() != "Linux" or asked not in ("", "egl", "osmesa"):
        return "gl_context"
    if asked:
        return asked
    for backend, works in WORKS.items():
        if works():
            return backend
    raise EnvError(f"no way to draw without a screen, neither EGL nor OSMesa works here: {PACKAGES}")


@functools.cache
def egl_works() -> bool:
    """Whether an EGL device can be initialised; asked without PyOpenGL, which would be bound to EGL for good."""
    try:
        library = ctypes.CDLL("libEGL.so.1")
    except OSError:
        return False
    devices, found = (ctypes.c_void_p * DEVICES)(), ctypes.c_int()
    query = _function(library, "eglQueryDevicesEXT", ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    display = _function(
        library, "eglGetPlatformDisplayEXT", ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p
    )
    if query is None or display is None or not query(DEVICES, devices, ctypes.byref(found)):
        return False
    library.eglInitialize.argtypes = [ctypes.c_void_p] * 3
    library.eglInitialize.restype = ctypes.c_uint
    shown = (display(EGL_PLATFORM_DEVICE, device, None) for device in devices[: found.value])
    return any(handle and library.eglInitialize(handle, None, None) for handle in shown)


@functools.cache
def osmesa_works() -> bool:
    """Whether OSMesa's library is there."""
    for name in ("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


WORKS: dict[str, Callable[[], bool]] = {"egl": egl_works, "osmesa": osmesa_works}


def _function(library: Any, name: str, result: Any, *arguments: Any) -> Callable[..., Any] | None:
    library.eglGetProcAddress.restype = ctypes.c_void_p
    library.eglGetProcAddress.argtypes = [ctypes.c_char_p]
    address = library.eglGetProcAddress(name.encode())
    return ctypes.CFUNCTYPE(result, *arguments)(address) if address else None
