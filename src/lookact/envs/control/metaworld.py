"""MetaWorld's tasks (arXiv:1910.10897) by name, at a fixed horizon and with images that are fast and upright.

An episode never terminates: `truncated` after `horizon` decisions, `info["success"]` tells whether the task is done.
"""

from __future__ import annotations

import copy
import difflib
import logging
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lookact.envs.control.metaworld_views import View, view_of
from lookact.envs.control.task_names import METAWORLD
from lookact.envs.tabletop.rendering import Renderer
from lookact.errors import ConfigError, EnvError
from lookact.types import Image

logger = logging.getLogger(__name__)

LONGEST = 500
"""Simulator steps that MetaWorld allows in an episode."""
RATE = 80
"""Simulator steps a second."""
CLOSE_VIEW = ("corner2", (0.75, 0.075, 0.7))
"""A camera that is moved up to the table, as preference learning from images commonly does."""
OWN_VIEW = "task"
"""In place of a camera's name: the task's own view, or the close one where it has none."""
STATE_SIZE, ACTION_SIZE = 39, 4
CELLS = 16
"""Along a mesh's longest side; vertices of one cell become one."""
FLOOR = (3.0, 3.0, 0.001)
State = NDArray[np.float32]


class MetaWorld(gymnasium.Env[State, State]):
    """Observations are MetaWorld's 39 numbers, the goal among them; actions move the gripper and its fingers.

    `horizon` counts decisions, each of them `action_repeat` simulator steps whose mean reward it gets. `camera` is one
    of MetaWorld's, or "task" for the view of `metaworld_views`. `crop` is the part of the image that is kept, as top,
    left, bottom and right shares of its side.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": RATE}  # noqa: RUF012

    def __init__(
        self,
        task: str,
        *,
        horizon: int = 250,
        action_repeat: int = 2,
        image_size: int = 64,
        camera: str = "corner2",
        crop: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0),
    ) -> None:
        if horizon < 1 or action_repeat < 1 or horizon * action_repeat > LONGEST:
            raise ConfigError(f"{horizon} decisions of {action_repeat} steps: MetaWorld ends after {LONGEST} steps")
        if not (0 <= crop[0] < crop[2] <= 1 and 0 <= crop[1] < crop[3] <= 1):
            raise ConfigError(f"crop is {crop}: give top, left, bottom, right as shares between 0 and 1")
        self.task, self.horizon, self.action_repeat = task_name(task), horizon, action_repeat
        self.image_size, self.camera, self.crop = image_size, camera, crop
        self.render_mode = "rgb_array"
        self.metadata = {**self.metadata, "render_fps": round(RATE / action_repeat)}
        self.inner = make_task(self.task)
        self._cameras = [self.inner.model.camera(index).name for index in range(self.inner.model.ncam)]
        if camera not in (OWN_VIEW, *self._cameras):
            raise ConfigError(f"camera is {camera!r}: choose one of {OWN_VIEW}, {', '.join(self._cameras)}")
        self.inner.model.camera(CLOSE_VIEW[0]).pos = CLOSE_VIEW[1]
        self._view = view_of(self.task) if camera == OWN_VIEW else None
        if camera == OWN_VIEW:
            self.camera = CLOSE_VIEW[0]
        if self._view is not None:
            move_camera(self.inner.model, self.camera, self._view)
        self.observation_space = spaces.Box(-np.inf, np.inf, (STATE_SIZE,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (ACTION_SIZE,), np.float32)
        self._renderer: Renderer | None = None
        self.steps, self._over = 0, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[State, dict[str, Any]]:
        """Where things stand is decided by the seed alone."""
        super().reset(seed=seed)
        self.inner.seed(int(self.np_random.integers(2**31)))
        self.steps, self._over = 0, False
        state, _ = self.inner.reset()
        return state.astype(np.float32), {"success": False}

    def step(self, action: State) -> tuple[State, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise EnvError("the episode is over: call reset before the next step")
        done = [self.inner.step(np.clip(action, -1.0, 1.0)) for _ in range(self.action_repeat)]
        self.steps += 1
        self._over = self.steps >= self.horizon
        reward = float(np.mean([reward for _, reward, *_ in done]))
        success = any(info["success"] > 0 for *_, info in done)
        return done[-1][0].astype(np.float32), reward, False, self._over, {"success": success}

    def render(self) -> Image:
        """(image_size, image_size, 3) of the camera, or what `crop` leaves of it."""
        if self._renderer is None:
            model = render_model(self.inner.model)
            if self._view is not None:
                paint(model, self._view)
            self._renderer = Renderer(model, self.image_size)
        image = self._renderer.draw(self.inner.data, (self.camera,))[self.camera]
        # most of MetaWorld's cameras hang upside down: the image's up, the camera's y axis, points to the floor
        if self.inner.data.camera(self.camera).xmat[7] < 0:
            image = image[::-1, ::-1]
        top, left, bottom, right = (round(share * self.image_size) for share in self.crop)
        return np.ascontiguousarray(image[top:bottom, left:right])

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def task_name(name: str) -> str:
    """MetaWorld's own name of a task, such as drawer-open-v3; a v2 name means the v3 task, and says so in the log."""
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    found = METAWORLD.fullmatch(name)
    task = f"{found[1]}-v3" if found else name
    if found is None or task not in ALL_V3_ENVIRONMENTS:
        near = difflib.get_close_matches(task, ALL_V3_ENVIRONMENTS, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"one of {', '.join(ALL_V3_ENVIRONMENTS)}"
        raise ConfigError(f"MetaWorld has no task {name!r}: {remedy}")
    if found[2] not in (None, "3"):
        logger.warning("%s is run as %s: MetaWorld's v2 tasks live on under that name", name, task)
    return task


def make_task(name: str) -> Any:
    """MetaWorld's environment with starts drawn from its seed and the goal shown."""
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    env = ALL_V3_ENVIRONMENTS[name]()
    env._set_task_called, env._freeze_rand_vec, env.seeded_rand_vec = True, False, True
    env._partially_observable = False
    # its bounds were worked out with the goal hidden, and would clip it to zero
    env.__dict__.pop("sawyer_observation_space", None)
    return env


def move_camera(model: Any, camera: str, view: View) -> None:
    """Set a camera to a view, upright."""
    back = np.subtract(view.eye, view.target)
    right = np.cross((0.0, 0.0, 1.0), back)
    axes = [right, np.cross(back, right), back]
    matrix = np.column_stack([axis / np.linalg.norm(axis) for axis in axes])
    moved, quaternion = model.camera(camera), np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, matrix.reshape(-1))
    moved.pos, moved.quat, moved.fovy = view.eye, quaternion, view.fovy


def paint(model: Any, view: View) -> None:
    """Paint the bodies that a view names."""
    for body, colour in view.colours.items():
        for geom in np.flatnonzero(model.geom_bodyid == model.body(body).id):
            model.geom_matid[geom], model.geom_rgba[geom, :3] = -1, colour


def render_model(model: Any) -> Any:
    """A copy for the renderer, many times faster to draw; the physics stay with the original.

    No shadows, no multisampling, a flat box for each plane (planes are tessellated anew for each image), meshes with
    few triangles.
    """
    fast = copy.deepcopy(model)
    fast.light_castshadow[:] = 0
    fast.vis.quality.offsamples = 0
    planes = fast.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
    fast.geom_type[planes] = mujoco.mjtGeom.mjGEOM_BOX
    fast.geom_size[planes] = FLOOR
    for mesh in range(fast.nmesh):
        decimate_mesh(fast, mesh)
    return fast


def decimate_mesh(model: Any, mesh: int) -> None:
    """Merge the vertices of each cell of a grid, and drop the triangles that vanish or repeat another."""
    first_vertex, vertices = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    first, count = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
    places = model.mesh_vert[first_vertex : first_vertex + vertices]
    low, high = places.min(axis=0), places.max(axis=0)
    cells = ((places - low) * (CELLS / max(float((high - low).max()), 1e-9))).astype(np.int64)
    _, kept, cell_of = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    faces = kept[cell_of.reshape(-1)[model.mesh_face[first : first + count]]]
    corners = np.sort(faces, axis=1)
    whole = np.flatnonzero((corners[:, 0] < corners[:, 1]) & (corners[:, 1] < corners[:, 2]))
    _, once = np.unique(corners[whole], axis=0, return_index=True)
    chosen = whole[np.sort(once)]
    # a mesh without any triangle is no mesh
    if not len(chosen):
        return
    for name in ("mesh_facenormal", "mesh_facetexcoord"):
        rows = getattr(model, name)
        rows[first : first + len(chosen)] = rows[first + chosen]
    model.mesh_face[first : first + len(chosen)] = faces[chosen]
    model.mesh_facenum[mesh] = len(chosen)
