"""A seven-joint arm with the Franka Emika Panda's kinematics, made of primitive shapes.

Joint frames follow Craig's Denavit-Hartenberg convention with the manufacturer's published values; limits, torques and
hand dimensions are the published ones too. Shapes and masses are our own approximations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from lookact.envs.tabletop.orientation import look_at

DENAVIT_HARTENBERG = (
    (0.0, 0.333, 0.0),
    (0.0, 0.0, -np.pi / 2),
    (0.0, 0.316, np.pi / 2),
    (0.0825, 0.0, np.pi / 2),
    (-0.0825, 0.384, -np.pi / 2),
    (0.0, 0.0, np.pi / 2),
    (0.088, 0.0, np.pi / 2),
)
"""(a, d, alpha) of each joint: metres along x, metres along z, radians about x."""
FLANGE = 0.107
"""Metres from the seventh joint to the flange."""
LIMITS = (
    (-2.8973, 2.8973),
    (-1.7628, 1.7628),
    (-2.8973, 2.8973),
    (-3.0718, -0.0698),
    (-2.8973, 2.8973),
    (-0.0175, 3.7525),
    (-2.8973, 2.8973),
)
"""Radians."""
TORQUES = (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0)
"""Newton metres."""
HOME: NDArray[np.float64] = np.array([0.0, -np.pi / 4, 0.0, -3 * np.pi / 4, 0.0, np.pi / 2, np.pi / 4])
FINGER_BASE = 0.0584
"""Metres from the flange to where the fingers begin."""
TOOL_CENTRE = 0.1034
"""Metres from the flange to the point between the finger tips."""
FINGER_TRAVEL = 0.04
"""Metres each finger moves from closed to open."""

MASSES = (4.97, 0.65, 3.23, 3.59, 1.23, 1.67, 0.74)
GAINS = (3000.0, 3000.0, 2500.0, 2500.0, 1200.0, 1200.0, 800.0)
FINGER_GAIN, FINGER_FORCE = 300.0, 40.0

TOUCHES_OBJECTS, TOUCHES_WORLD, TOUCHES_ARM = 1, 2, 4
SHELL, JOINT, DARK = (0.93, 0.94, 0.96, 1.0), (0.42, 0.45, 0.5, 1.0), (0.16, 0.17, 0.19, 1.0)


SECOND = "second_"
"""Before all names of a second arm."""
SECOND_BASE, SECOND_TURN = np.array([0.5, 0.62, 0.0]), -np.pi / 2
"""Where a second arm stands, at the table's side, and how it is turned: its forward is the table's -y."""


@dataclass(frozen=True)
class Piece:
    """A capsule or cylinder between two points of a link's frame."""

    start: tuple[float, float, float]
    end: tuple[float, float, float]
    radius: float
    rgba: tuple[float, float, float, float] = SHELL
    rounded: bool = True
    solid: bool = False
    """Stopped by the table; the other pieces are only seen."""


LINKS: tuple[tuple[Piece, ...], ...] = (
    (Piece((0, 0, -0.19), (0, 0, -0.03), 0.062), Piece((0, -0.062, 0), (0, 0.062, 0), 0.058, JOINT, False)),
    (Piece((0, -0.02, 0), (0, -0.17, 0), 0.06),),
    (Piece((0, 0, -0.13), (0, 0, -0.06), 0.058), Piece((0.02, 0, 0), (0.0825, 0, 0), 0.055)),
    (Piece((0, 0, -0.06), (0, 0, 0.06), 0.056, JOINT, False), Piece((-0.0825, 0.02, 0), (-0.0825, 0.1, 0), 0.052)),
    (Piece((0, 0.0, -0.27), (0, 0.03, -0.04), 0.05, solid=True),),
    (Piece((0, 0, -0.05), (0, 0, 0.06), 0.047, JOINT, False), Piece((0.02, 0, 0), (0.088, 0, 0), 0.045, solid=True)),
    (Piece((0, 0, -0.02), (0, 0, 0.1), 0.042, SHELL, False, True),),
)


def add_arm(spec: Any) -> None:
    """Put the arm on the world's origin: bodies link1..link7, hand, fingers, the site `tool` and the camera `wrist`."""
    _add_pedestal(spec.worldbody)
    parent = spec.worldbody
    for index, (pieces, mass) in enumerate(zip(LINKS, MASSES)):
        parent = _add_link(parent, index, pieces, mass)
        _add_servo(spec, f"joint{index + 1}", GAINS[index], TORQUES[index], LIMITS[index])
    hand = _add_hand(parent)
    for side, sign in (("left", 1.0), ("right", -1.0)):
        _add_finger(hand, side, sign)
        _add_servo(spec, side, FINGER_GAIN, FINGER_FORCE, (0.0, FINGER_TRAVEL))


def add_second_arm(spec: Any) -> None:
    """Put another arm of the same make at the table's side; its joints and servos come after all others."""
    arm = mujoco.MjSpec()
    arm.compiler.degree = False
    add_arm(arm)
    turn = [np.cos(SECOND_TURN / 2), 0, 0, np.sin(SECOND_TURN / 2)]
    spec.attach(arm, prefix=SECOND, frame=spec.worldbody.add_frame(pos=SECOND_BASE, quat=turn))


def _add_pedestal(world: Any) -> None:
    for piece in (Piece((-0.06, 0, 0.05), (0.02, 0, 0.05), 0.07), Piece((0, 0, 0), (0, 0, 0.15), 0.07, rounded=False)):
        _add_piece(world, piece)


def _add_link(parent: Any, index: int, pieces: tuple[Piece, ...], mass: float) -> Any:
    a, d, alpha = DENAVIT_HARTENBERG[index]
    link = parent.add_body(
        name=f"link{index + 1}",
        pos=[a, -np.sin(alpha) * d, np.cos(alpha) * d],
        quat=[np.cos(alpha / 2), np.sin(alpha / 2), 0, 0],
        gravcomp=1,
    )
    link.add_joint(
        name=f"joint{index + 1}",
        type=mujoco.mjtJoint.mjJNT_HINGE,
        axis=[0, 0, 1],
        range=LIMITS[index],
        armature=0.1,
        damping=1.0,
    )
    for piece in pieces:
        _add_piece(link, piece, mass / len(pieces))
    return link


def _add_piece(body: Any, piece: Piece, mass: float = 0.0) -> None:
    kind = mujoco.mjtGeom.mjGEOM_CAPSULE if piece.rounded else mujoco.mjtGeom.mjGEOM_CYLINDER
    body.add_geom(
        type=kind,
        size=[piece.radius, 0, 0],
        fromto=[*piece.start, *piece.end],
        rgba=piece.rgba,
        mass=mass,
        contype=TOUCHES_ARM if piece.solid else 0,
        conaffinity=TOUCHES_WORLD if piece.solid else 0,
    )


def _add_hand(flange: Any) -> Any:
    # the hand is bolted on a quarter turn's half back, so that at home the fingers open sideways
    turn = -np.pi / 4
    hand = flange.add_body(name="hand", pos=[0, 0, FLANGE], quat=[np.cos(turn / 2), 0, 0, np.sin(turn / 2)], gravcomp=1)
    box = mujoco.mjtGeom.mjGEOM_BOX
    hand.add_geom(
        type=box,
        pos=[0, 0, 0.035],
        size=[0.024, 0.098, 0.028],
        rgba=SHELL,
        mass=0.6,
        contype=TOUCHES_ARM,
        conaffinity=3,
    )
    hand.add_site(name="tool", pos=[0, 0, TOOL_CENTRE], group=5)
    eye, point = np.array([0.1, 0.0, 0.015]), np.array([0.05, 0.0, 0.12])
    hand.add_camera(name="wrist", pos=eye, quat=look_at(eye, point, np.array([1.0, 0.0, 0.0])), fovy=78)
    return hand


def _add_finger(hand: Any, side: str, sign: float) -> None:
    finger = hand.add_body(name=side, pos=[0, 0, FINGER_BASE], gravcomp=1)
    finger.add_joint(
        name=side,
        type=mujoco.mjtJoint.mjJNT_SLIDE,
        axis=[0, sign, 0],
        range=[0, FINGER_TRAVEL],
        armature=0.05,
        damping=5.0,
    )
    # pads a little wider than the real ones: objects do not slip out sideways
    finger.add_geom(
        name=f"{side}_pad",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=[0, sign * 0.006, 0.028],
        size=[0.014, 0.006, 0.026],
        rgba=DARK,
        mass=0.05,
        friction=[1.6, 0.02, 0.001],
        contype=TOUCHES_ARM,
        conaffinity=TOUCHES_OBJECTS | TOUCHES_WORLD,
    )


def _add_servo(spec: Any, joint: str, gain: float, force: float, limits: tuple[float, float]) -> None:
    servo = spec.add_actuator(
        name=joint,
        target=joint,
        trntype=mujoco.mjtTrn.mjTRN_JOINT,
        gaintype=mujoco.mjtGain.mjGAIN_FIXED,
        biastype=mujoco.mjtBias.mjBIAS_AFFINE,
        ctrlrange=limits,
        forcerange=[-force, force],
    )
    servo.gainprm[0] = gain
    # a positive third bias is read as a damping ratio: critically damped
    servo.biasprm[1], servo.biasprm[2] = -gain, 1.0
