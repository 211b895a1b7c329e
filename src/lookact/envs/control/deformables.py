"""A rope to straighten and a cloth to fold, of MuJoCo's flex objects: simple stand-ins for RL-VLM-F's deformable tasks.

Both lie on a table, seen from above. Hands hold their ends and follow the actions; what is between is simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lookact.envs.control.task_names import DEFORMABLE
from lookact.envs.tabletop.rendering import Renderer
from lookact.errors import ConfigError
from lookact.types import Image

State = NDArray[np.float32]
STEPS, REACH = 10, 0.015
"""Simulator steps an action, and how far a hand moves in them, in metres."""
BEADS, SPACING = 21, 0.015
"""Of the rope."""
CORNERS, CLOTH_SPACING = 9, 0.03
"""Vertices along a side of the cloth."""
LIFT, EDGE = 0.01, 0.25
"""Height of what lies on the table, and half the side of the square that hands stay in."""
BENDS = (2.5, 5.5)
"""Radians by which a rope turns from end to end as an episode starts."""
CAMERA = "above"
WORLD = """
<mujoco>
  <option timestep="0.004" solver="CG" tolerance="1e-6" integrator="implicitfast"/>
  <visual><headlight ambient=".45 .45 .45" diffuse=".4 .4 .4"/></visual>
  <worldbody>
    <geom type="box" size=".4 .4 .01" pos="0 0 -.01" rgba=".35 .35 .4 1"/>
    <camera name="above" pos="0 -.3 .6" xyaxes="1 0 0 0 .894 .447" fovy="45"/>
    {hands}
    <flexcomp name="soft" type="grid" {shape} pos="0 0 .01" mass=".05" rgba="1 .5 .05 1">
      <edge equality="true" damping=".01" solref=".008 1"/>
      <contact selfcollide="none" solref=".01 1"/>
    </flexcomp>
  </worldbody>
  <equality>{grips}</equality>
</mujoco>
"""
HAND = """
<body name="{name}" mocap="true" pos="{x} {y} 0.01">
  <geom type="sphere" size=".012" rgba="{colour}" contype="0" conaffinity="0"/>
</body>
"""
GRIP = '<connect body1="{name}" body2="soft_{vertex}" anchor="0 0 0"/>'
RED, BLUE = ".9 .1 .1 1", ".1 .3 1 1"


@dataclass(frozen=True)
class Thing:
    """What is held, and where."""

    shape: str
    """Of MuJoCo's flexcomp."""
    vertices: int
    held: tuple[int, ...]
    """Vertices with a hand each."""
    marked: tuple[int, ...]
    """Vertices with a blue ball that only shows where they are."""
    flat: tuple[tuple[float, float], ...]
    """Where the model has those vertices: a grip keeps the distance that hand and vertex have there."""
    free: int
    """Directions in which a hand moves: 2 along the table, 3 also up and down."""
    size: float
    """The distance of its two ends when it lies flat and straight."""


ROPE_END, CLOTH_END = SPACING * (BEADS - 1) / 2, CLOTH_SPACING * (CORNERS - 1) / 2
THINGS = {
    "rope": Thing(
        shape=f'dim="1" count="{BEADS} 1 1" spacing="{SPACING} 1 1" radius=".006"',
        vertices=BEADS,
        held=(0, BEADS - 1),
        marked=(),
        flat=((-ROPE_END, 0.0), (ROPE_END, 0.0)),
        free=2,
        size=2 * ROPE_END,
    ),
    "cloth": Thing(
        shape=f'dim="2" count="{CORNERS} {CORNERS} 1" spacing="{CLOTH_SPACING} {CLOTH_SPACING} 1" radius=".004"',
        vertices=CORNERS**2,
        held=(0,),
        marked=(CORNERS**2 - 1,),
        flat=((-CLOTH_END, -CLOTH_END), (CLOTH_END, CLOTH_END)),
        free=3,
        size=2 * 2**0.5 * CLOTH_END,
    ),
}
STRAIGHT, FOLDED = 0.95, 0.9
"""Rewards from which on a rope is straight, and a cloth folded."""


class Deformable(gymnasium.Env[State, State]):
    """`deformable/rope`: bring its ends apart. `deformable/cloth`: lay the held corner on the opposite, blue one.

    Observations are the positions of all vertices, three numbers each; actions move the hands. The reward, between 0
    and 1, is the distance of the rope's ends as a share of the way along it, or what the corners lack of a diagonal.
    """

    def __init__(self, task: str, *, image_size: int = 64) -> None:
        name = task.removeprefix(DEFORMABLE)
        if name not in THINGS:
            known = ", ".join(DEFORMABLE + each for each in THINGS)
            raise ConfigError(f"no deformable task {task!r}: choose of {known}")
        self.name, self.thing, self.image_size = name, THINGS[name], image_size
        self.model: Any = mujoco.MjModel.from_xml_string(world_of(self.thing))
        self.data: Any = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, self.data)
        self._flat = self.data.flexvert_xpos.copy()
        self.observation_space = spaces.Box(-np.inf, np.inf, (3 * self.thing.vertices,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (self.thing.free * len(self.thing.held),), np.float32)
        self._renderer: Renderer | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[State, dict[str, Any]]:
        """A bent rope, or a flat cloth, turned and moved by the seed alone."""
        super().reset(seed=seed)
        turn, shift = self.np_random.uniform(-np.pi, np.pi), self.np_random.uniform(-0.04, 0.04, 2)
        places = self._flat.copy()
        if self.name == "rope":
            places[:, :2] = bent_rope(self.np_random.uniform(*BENDS) * self.np_random.choice((-1.0, 1.0)))
        across, along = np.array([np.cos(turn), -np.sin(turn)]), np.array([np.sin(turn), np.cos(turn)])
        places[:, :2] = np.column_stack([places[:, :2] @ across, places[:, :2] @ along]) + shift
        mujoco.mj_resetData(self.model, self.data)
        # each vertex has three slides, along the axes, from where it lies flat
        self.data.qpos[:] = (places - self._flat).reshape(-1)
        held = [*self.thing.held, *self.thing.marked]
        self.data.mocap_pos[:] = places[held]
        mujoco.mj_forward(self.model, self.data)
        return self.state, {"success": False}

    def step(self, action: State) -> tuple[State, float, bool, bool, dict[str, Any]]:
        thing, hands = self.thing, len(self.thing.held)
        moves = np.zeros((hands, 3))
        moves[:, : thing.free] = REACH * np.clip(action, -1.0, 1.0).reshape(hands, thing.free)
        low, high = (-EDGE, -EDGE, LIFT), (EDGE, EDGE, EDGE)
        begun, ended = self.data.mocap_pos[:hands].copy(), np.clip(self.data.mocap_pos[:hands] + moves, low, high)
        if hands == 2 and (apart := float(np.linalg.norm(ended[1] - ended[0]))) > thing.size:
            # no hand can tear the rope
            ended = ended.mean(axis=0) + (ended - ended.mean(axis=0)) * (thing.size / apart)
        for done in np.arange(1, STEPS + 1) / STEPS:
            self.data.mocap_pos[:hands] = begun + done * (ended - begun)
            mujoco.mj_step(self.model, self.data)
        self.data.mocap_pos[hands:] = self.data.flexvert_xpos[list(thing.marked)]
        reward = self.progress
        success = reward >= (STRAIGHT if self.name == "rope" else FOLDED)
        return self.state, reward, False, False, {"success": success}

    @property
    def state(self) -> State:
        return np.asarray(self.data.flexvert_xpos, dtype=np.float32).reshape(-1)

    @property
    def progress(self) -> float:
        """1 where the rope is straight, or the two corners meet."""
        places = self.data.flexvert_xpos
        apart = float(np.linalg.norm(places[-1] - places[0]))
        if self.name == "rope":
            # a rope that was pulled is a little longer for a while: straight is what has no shorter way
            return apart / float(np.linalg.norm(np.diff(places, axis=0), axis=1).sum())
        return max(0.0, 1.0 - apart / self.thing.size)

    def render(self) -> Image:
        """(image_size, image_size, 3) from above."""
        if self._renderer is None:
            self._renderer = Renderer(self.model, self.image_size)
        return self._renderer.draw(self.data, (CAMERA,))[CAMERA]

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def world_of(thing: Thing) -> str:
    """The XML of a table with a thing on it, in hands."""
    balls = [(f"hand{place}", RED) for place in range(len(thing.held))]
    marks = [(f"mark{place}", BLUE) for place in range(len(thing.marked))]
    hands = "".join(
        HAND.format(name=name, colour=colour, x=x, y=y) for (name, colour), (x, y) in zip(balls + marks, thing.flat)
    )
    grips = "".join(GRIP.format(name=name, vertex=vertex) for (name, _), vertex in zip(balls, thing.held))
    return WORLD.format(hands=hands, shape=thing.shape, grips=grips)


def bent_rope(bend: float) -> NDArray[np.float64]:
    """(BEADS, 2) places of a rope that turns by `bend` radians from end to end, about the middle of its ends."""
    headings = bend * (np.arange(BEADS - 1) / (BEADS - 2) - 0.5)
    steps = SPACING * np.column_stack([np.cos(headings), np.sin(headings)])
    places = np.vstack([np.zeros((1, 2)), np.cumsum(steps, axis=0)])
    middle: NDArray[np.float64] = places - (places[0] + places[-1]) / 2
    return middle
