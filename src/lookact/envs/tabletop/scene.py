"""Table, objects, targets and cameras as one compiled MuJoCo model.

One model serves all episodes: `staging` moves, recolours and swaps what is here, nothing is compiled again. Objects
carry every shape of their kind at once, and all but the chosen one are invisible and untouchable. What touches is
always a box, also inside a cylinder: boxes meet in several points, stand firm and are cheap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from lookact.envs.tabletop.arm import TOUCHES_ARM, TOUCHES_OBJECTS, TOUCHES_WORLD, add_arm, add_second_arm
from lookact.envs.tabletop.drawers import add_cabinet
from lookact.envs.tabletop.orientation import look_at
from lookact.envs.tabletop.textures import SIZE, Colour, paint

BOX, CYLINDER = mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER
SHAPES: dict[str, tuple[int, tuple[float, float, float]]] = {
    "cube": (BOX, (0.022, 0.022, 0.022)),
    "cylinder": (CYLINDER, (0.023, 0.022, 0.0)),
    "brick": (BOX, (0.03, 0.018, 0.018)),
}
"""What is seen: kind and half sizes in metres."""
LONG_SHAPES: dict[str, tuple[int, tuple[float, float, float]]] = {
    "bar": (BOX, (0.05, 0.022, 0.018)),
    "stick": (BOX, (0.056, 0.017, 0.015)),
    "plank": (BOX, (0.052, 0.027, 0.013)),
}
"""Too long for the fingers, which open by 8 cm: the hand must turn across them."""
KINDS = {"plain": SHAPES, "long": LONG_SHAPES}
PLAIN_NAMES = dict(zip(LONG_SHAPES, SHAPES))
"""A long shape to the plain one whose colours it has."""
CORES = {
    "cube": (0.022, 0.022, 0.022),
    "cylinder": (0.02, 0.02, 0.022),
    "brick": (0.03, 0.018, 0.018),
    **{shape: size for shape, (_, size) in LONG_SHAPES.items()},
}
"""What touches: half sizes of a box."""
HEIGHTS = {shape: size[2] for shape, size in CORES.items()}
"""Of an object's middle when it rests on the table."""
COLOURS: dict[str, Colour] = {
    "red": (0.86, 0.16, 0.14),
    "green": (0.16, 0.66, 0.28),
    "blue": (0.15, 0.34, 0.86),
    "yellow": (0.96, 0.78, 0.12),
    "purple": (0.55, 0.24, 0.72),
    "orange": (0.97, 0.5, 0.1),
}
STAND_HEIGHT = 0.03
TARGET_RADIUS = 0.055
"""Half a stand's side, or a mark's radius."""
BLOCK = (0.026, 0.026, 0.022)
"""Half sizes of a block that something is stacked on: a thing that can be pushed and toppled."""
SURFACES: tuple[tuple[str, Colour, Colour], ...] = (
    ("wood", (0.74, 0.58, 0.42), (0.66, 0.5, 0.35)),
    ("plain", (0.78, 0.78, 0.76), (0.7, 0.7, 0.68)),
    ("marble", (0.86, 0.85, 0.83), (0.74, 0.74, 0.76)),
    ("wood", (0.5, 0.37, 0.27), (0.42, 0.3, 0.22)),
    ("plain", (0.36, 0.4, 0.44), (0.46, 0.5, 0.53)),
    ("tiles", (0.8, 0.8, 0.78), (0.62, 0.62, 0.6)),
    ("plain", (0.62, 0.68, 0.66), (0.54, 0.6, 0.58)),
    ("marble", (0.5, 0.52, 0.56), (0.4, 0.42, 0.47)),
    ("checks", (0.82, 0.8, 0.74), (0.58, 0.56, 0.52)),
    ("stripes", (0.6, 0.66, 0.72), (0.78, 0.8, 0.82)),
    ("dots", (0.7, 0.62, 0.6), (0.86, 0.82, 0.76)),
    ("checks", (0.34, 0.42, 0.38), (0.52, 0.6, 0.52)),
)
"""Table, floor and wall; `randomise` says which are held out."""
HEAD_EYE, HEAD_POINT, HEAD_FOVY = np.array([1.08, 0.0, 0.56]), np.array([0.46, 0.0, 0.08]), 37.0
TIMESTEP = 0.01
SLIPPERY = (0.45, 0.005, 0.0005)
"""Friction of objects and what they lie on: low enough that a pushed object slides and does not tip."""
CALM = (0.2, 0.0008)
"""Damping of an object's travel and turning, so that what tips over does not roll off the table."""


@dataclass(frozen=True)
class Layout:
    """What a scene is made of."""

    targets: str = "stand"
    """`stand`: an object must be lifted onto them; `block`: the same, and they can be moved; `mark`: flat on the table;
    `drawer`: of a cabinet, on a table without objects; `none`."""
    distractors: int = 0
    """Further objects that can be moved, and as many further targets."""
    clutter: int = 4
    """Places at the table's rim for things that are only seen."""
    kind: str = "plain"
    """`plain` objects, or `long` ones."""
    sizes: bool = False
    """Whether objects are scaled from episode to episode."""
    second_arm: bool = False

    @property
    def objects(self) -> int:
        return 0 if self.targets == "drawer" else 1 + self.distractors

    @property
    def shapes(self) -> dict[str, tuple[int, tuple[float, float, float]]]:
        return KINDS[self.kind]


def build_model(layout: Layout) -> Any:
    """The compiled model of a layout."""
    spec = mujoco.MjSpec()
    _set_physics(spec)
    if layout.sizes:
        # its boxes are those of the compiled sizes
        spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_MIDPHASE.value
    _add_surfaces(spec)
    _add_room(spec)
    add_arm(spec)
    if layout.targets == "drawer":
        add_cabinet(spec.worldbody, 1 + layout.distractors)
    for index in range(layout.objects):
        _add_object(spec, index, layout)
        if layout.targets == "block":
            _add_block(spec, index)
        elif layout.targets != "none":
            _add_target(spec, index, layout.targets == "stand")
    for index in range(layout.clutter):
        _add_shapes(spec.worldbody.add_body(name=f"clutter{index}", pos=[0.9, 0, 0.1]), f"clutter{index}", layout)
    if layout.second_arm:
        add_second_arm(spec)
    model = spec.compile()
    _paint_surfaces(model)
    for name in _loose(layout):
        model.dof_damping[model.joint(name).dofadr[0] :][:6] = np.repeat(CALM, 3)
    return model


def _loose(layout: Layout) -> list[str]:
    """Bodies that lie on the table and can be moved."""
    blocks = layout.objects if layout.targets == "block" else 0
    return [f"object{index}" for index in range(layout.objects)] + [f"target{index}" for index in range(blocks)]


def _set_physics(spec: Any) -> None:
    spec.compiler.degree = False
    spec.option.timestep = TIMESTEP
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    # drawing on a CPU: what costs most is samples and triangles
    spec.visual.quality.offsamples = 0
    spec.visual.quality.numslices = 16
    spec.visual.quality.numstacks = 6
    spec.visual.quality.numquads = 1
    spec.visual.headlight.ambient = [0.36, 0.36, 0.36]
    spec.visual.headlight.diffuse = [0.2, 0.2, 0.2]
    spec.visual.headlight.specular = [0, 0, 0]
    spec.visual.map.znear = 0.01
    spec.stat.extent = 1.0


def _add_surfaces(spec: Any) -> None:
    flat = mujoco.mjtBuiltin.mjBUILTIN_FLAT
    for index in range(len(SURFACES)):
        spec.add_texture(
            name=f"surface{index}", type=mujoco.mjtTexture.mjTEXTURE_2D, builtin=flat, width=SIZE, height=SIZE
        )
        material = spec.add_material(name=f"surface{index}", texrepeat=[3, 3], texuniform=True, specular=0, shininess=0)
        material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = f"surface{index}"


def _paint_surfaces(model: Any) -> None:
    for index, (pattern, first, second) in enumerate(SURFACES):
        start = model.texture(f"surface{index}").adr[0]
        model.tex_data[start : start + SIZE * SIZE * 3] = paint(pattern, first, second, index).ravel()


def _add_room(spec: Any) -> None:
    world = spec.worldbody
    solid = {"contype": TOUCHES_WORLD, "conaffinity": TOUCHES_OBJECTS | TOUCHES_ARM}
    seen = {"contype": 0, "conaffinity": 0}
    world.add_geom(
        name="table",
        type=BOX,
        pos=[0.35, 0, -0.03],
        size=[0.6, 0.65, 0.03],
        material="surface0",
        friction=SLIPPERY,
        **solid,
    )
    world.add_geom(name="floor", type=BOX, pos=[0, 0, -0.8], size=[2.5, 2.5, 0.05], material="surface1", **solid)
    # turned so that the textured side faces the table
    world.add_geom(
        name="wall",
        type=BOX,
        pos=[-0.9, 0, 0.5],
        quat=[np.sqrt(0.5), 0, np.sqrt(0.5), 0],
        size=[1.6, 2.5, 0.05],
        material="surface2",
        **seen,
    )
    for index, (position, direction) in enumerate(
        [((0.8, -0.8, 1.6), (-0.3, 0.5, -1)), ((0.6, 1.0, 1.4), (-0.2, -0.7, -1))]
    ):
        world.add_light(
            name=f"light{index}",
            directional=True,
            castshadow=False,
            pos=position,
            dir=direction,
            diffuse=[0.45, 0.45, 0.45],
            specular=[0, 0, 0],
        )
    world.add_camera(
        name="head", pos=HEAD_EYE, quat=look_at(HEAD_EYE, HEAD_POINT, np.array([0.0, 0.0, 1.0])), fovy=HEAD_FOVY
    )


def _add_target(spec: Any, index: int, stand: bool) -> None:
    half = STAND_HEIGHT / 2 if stand else 0.001
    spec.worldbody.add_body(name=f"target{index}", pos=[0.5, 0.15, 0]).add_geom(
        name=f"target{index}",
        type=BOX if stand else CYLINDER,
        pos=[0, 0, half],
        size=[TARGET_RADIUS, TARGET_RADIUS, half] if stand else [TARGET_RADIUS, half, 0],
        friction=SLIPPERY,
        contype=TOUCHES_WORLD if stand else 0,
        conaffinity=TOUCHES_OBJECTS | TOUCHES_ARM if stand else 0,
    )


def _add_block(spec: Any, index: int) -> None:
    name = f"target{index}"
    body = spec.worldbody.add_body(name=name, pos=[0.5, 0.15, BLOCK[2]])
    body.add_freejoint(name=name)
    solid = {"contype": TOUCHES_OBJECTS, "conaffinity": TOUCHES_OBJECTS | TOUCHES_ARM}
    body.add_geom(name=name, type=BOX, size=BLOCK, mass=0.15, friction=SLIPPERY, **solid)


def _add_object(spec: Any, index: int, layout: Layout) -> None:
    body = spec.worldbody.add_body(
        name=f"object{index}", pos=[0.5, 0, 0.03], mass=0.1, ipos=[0, 0, 0], inertia=[6e-5] * 3, explicitinertial=True
    )
    body.add_freejoint(name=f"object{index}")
    _add_shapes(body, f"object{index}", layout)
    for shape in layout.shapes:
        body.add_geom(
            name=f"object{index}_{shape}_core",
            type=BOX,
            size=CORES[shape],
            rgba=[0, 0, 0, 0],
            friction=SLIPPERY,
            contype=TOUCHES_OBJECTS,
            conaffinity=TOUCHES_OBJECTS | TOUCHES_ARM,
        )


def _add_shapes(body: Any, name: str, layout: Layout) -> None:
    for shape, (kind, size) in layout.shapes.items():
        body.add_geom(name=f"{name}_{shape}", type=kind, size=size, contype=0, conaffinity=0)
