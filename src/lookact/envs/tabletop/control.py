"""From actions to joint targets: small moves of the tool by inverse kinematics, or of the joints themselves.

Actions lie in [-1, 1]. In both modes the last number is how far the gripper shall be open: -1 closed, 1 open.
`ee_delta` moves the tool by up to `STEP_METRES` along x, y and z of the table, fingers pointing down; `ee_delta_yaw`
also turns the hand about the vertical, by up to `STEP_YAW`; `delta_qpos` turns each of the seven joints by up to
`STEP_RADIANS`.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from lookact.envs.tabletop.arm import FINGER_TRAVEL, HOME, LIMITS
from lookact.envs.tabletop.orientation import Vector, about_vertical, rotation_error
from lookact.envs.tabletop.sizes import ACTION_SIZES
from lookact.errors import ConfigError

STEP_METRES = 0.025
STEP_RADIANS = 0.08
STEP_YAW = 0.25
YAW_LIMIT = 1.6
"""Radians that the hand may be turned by from where its fingers open sideways."""
REACH_LOW, REACH_HIGH = np.array([0.26, -0.32, 0.013]), np.array([0.74, 0.32, 0.4])
"""The box the tool is kept in by `ee_delta`."""
DOWN = np.diag([1.0, -1.0, -1.0])
"""How the hand is turned while the fingers point down."""
DAMPING = 0.05**2 * np.eye(6)
LEASH = 0.3
"""Radians a joint's target may run ahead of the joint, so that a blocked arm does not store up a leap."""
LOW, HIGH = np.array(LIMITS).T


def between(x: Vector, low: Vector | float, high: Vector | float) -> Vector:
    """`np.clip` at a third of its price for vectors as short as these."""
    return np.minimum(np.maximum(x, low), high)


class Kinematics:
    """Where the tool is for given joints, and which joints bring it somewhere."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.scratch = mujoco.MjData(model)
        self.tool = model.site("tool").id
        self.jacobian = np.zeros((6, model.nv))
        self.error = np.zeros(6)

    def position(self, joints: Vector) -> Vector:
        """The tool's position (3,)."""
        self.scratch.qpos[:7] = joints
        mujoco.mj_kinematics(self.model, self.scratch)
        return np.array(self.scratch.site_xpos[self.tool])

    def step(self, joints: Vector, wanted: Vector, turn: Vector = DOWN) -> Vector:
        """One damped least-squares step (7,) that brings the tool towards `wanted` and the hand towards `turn` (3, 3),
        elbow near home."""
        here = self.position(joints)
        mujoco.mj_comPos(self.model, self.scratch)
        mujoco.mj_jacSite(self.model, self.scratch, self.jacobian[:3], self.jacobian[3:], self.tool)
        slope = self.jacobian[:, :7]
        self.error[:3] = wanted - here
        self.error[3:] = rotation_error(turn, self.scratch.site_xmat[self.tool].reshape(3, 3))
        homing = 0.05 * (HOME - joints)
        # what the redundant joint does without moving the tool goes towards home
        pull: Vector = slope.T @ np.linalg.solve(slope @ slope.T + DAMPING, self.error - slope @ homing)
        return pull + homing

    def solve(self, joints: Vector, wanted: Vector, steps: int, yaw: float = 0.0) -> Vector:
        """Joints (7,) within their limits after so many steps from `joints`, fingers down and turned by `yaw`."""
        turn = about_vertical(yaw) @ DOWN if yaw else DOWN
        for _ in range(steps):
            joints = between(joints + self.step(joints, wanted, turn), LOW, HIGH)
        return joints


class Controller:
    """Keeps the joint targets of one arm."""

    def __init__(self, model: Any, mode: str) -> None:
        if mode not in ACTION_SIZES:
            raise ConfigError(f"control is {mode!r}: choose one of {', '.join(ACTION_SIZES)}")
        self.mode = mode
        self.kinematics = Kinematics(model)
        self.begin(HOME)

    def begin(self, joints: Vector) -> None:
        """Start from these joints, gripper open."""
        self.joints = joints.copy()
        self.tool = self.kinematics.position(joints)
        self.yaw, self.opening = 0.0, 1.0

    def command(self, action: NDArray[np.float32], measured: Vector) -> Vector:
        """Targets (9,) of the seven joints and the two fingers, given the joints as they are."""
        wish = between(np.asarray(action, np.float64), -1.0, 1.0)
        self.opening = float(wish[-1] + 1.0) / 2
        if self.mode == "ee_delta":
            self.tool = between(self.tool + STEP_METRES * wish[:3], REACH_LOW, REACH_HIGH)
            wanted = self.kinematics.solve(self.joints, self.tool, 2)
        elif self.mode == "ee_delta_yaw":
            self.tool = between(self.tool + STEP_METRES * wish[:3], REACH_LOW, REACH_HIGH)
            self.yaw = min(max(self.yaw + STEP_YAW * float(wish[3]), -YAW_LIMIT), YAW_LIMIT)
            wanted = self.kinematics.solve(self.joints, self.tool, 2, self.yaw)
        else:
            wanted = self.joints + STEP_RADIANS * wish[:7]
        self.joints = between(between(wanted, measured - LEASH, measured + LEASH), LOW, HIGH)
        return np.append(self.joints, [FINGER_TRAVEL * self.opening] * 2)

    def action_towards(self, tool: Vector, opening: float, turn: float = 0.0) -> NDArray[np.float32]:
        """The action that brings the tool as near to `tool`, and turns the hand as much of `turn`, as one step can."""
        if self.mode == "ee_delta":
            move = (tool - self.tool) / STEP_METRES
        elif self.mode == "ee_delta_yaw":
            move = (tool - self.tool) / STEP_METRES
            move = move / max(1.0, float(np.abs(move).max()))
            move = np.append(move, min(max(turn / STEP_YAW, -1.0), 1.0))
        else:
            here = self.kinematics.position(self.joints)
            shift = tool - here
            shift *= min(1.0, STEP_METRES / max(float(np.abs(shift).max()), 1e-9))
            move = (self.kinematics.solve(self.joints, here + shift, 2) - self.joints) / STEP_RADIANS
        move = move / max(1.0, float(np.abs(move).max()))
        return np.append(move, 2 * opening - 1).astype(np.float32)

    def state(self) -> Vector:
        """(12,) all that the next command depends on."""
        return np.concatenate([self.joints, self.tool, [self.opening, self.yaw]])

    def restore(self, state: Vector) -> None:
        self.joints, self.tool = state[:7].copy(), state[7:10].copy()
        self.opening, self.yaw = float(state[10]), float(state[11]) if len(state) > 11 else 0.0


def pad(vectors: NDArray[np.float32], size: int = 32) -> NDArray[np.float32]:
    """(..., n) actions or states as (..., size), zeros behind: the width that many foreign models want."""
    if vectors.shape[-1] > size:
        raise ConfigError(f"{vectors.shape[-1]} numbers do not fit into {size}: choose a wider padding")
    return np.pad(vectors, [(0, 0)] * (vectors.ndim - 1) + [(0, size - vectors.shape[-1])])
