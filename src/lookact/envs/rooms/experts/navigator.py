"""The navigation expert: plans on an occupancy map of nothing but what its own views have shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lookact.envs.rooms.experts.occupancy_map import (
    CELL,
    CLEARANCES,
    FORWARD_STEP,
    TURN_STEP,
    OccupancyMap,
    best_move,
    explore,
    within,
)
from lookact.envs.rooms.experts.sentences import in_view, never_seen, out_of_view
from lookact.envs.rooms.motion import Limits, Move, Pose, bearing_to
from lookact.envs.rooms.render import Camera
from lookact.envs.rooms.scene import Array
from lookact.envs.rooms.simulator import View
from lookact.envs.rooms.space import distance_field

VISIBLE_SHARE = 0.001
"""Of the picture, for an object to count as seen."""


class Navigator:
    """Replies with a sentence and a move: rotations in steps of 15 degrees, walks in steps of 0.25 m."""

    def __init__(self, goal: int, *, camera: Camera, limits: Limits, success_distance: float) -> None:
        """`goal` is the object's index in `View.instance`, told for the current view only."""
        self.goal = goal
        self.camera, self.limits = camera, limits
        self.near = success_distance - 1.5 * CELL
        self.map: OccupancyMap | None = None
        self.goal_points: Array = np.zeros((0, 2))

    def act(self, view: View, info: Mapping[str, Any]) -> str:
        """The reply to this view; of `info` it heeds whether the last walk was stopped."""
        seen = self.map = self.map or OccupancyMap(view.pose, self.camera)
        points = seen.add(view)
        if info["collided"]:
            seen.mark_blocked(view.pose)
        shown = points[view.instance == self.goal][:, :2]
        visible = len(shown) >= VISIBLE_SHARE * view.instance.size
        if visible:
            self.goal_points = np.concatenate([self.goal_points, shown])
        return f"{self._sentence(view.pose, shown, visible)} {self._choose(seen, view.pose).json()}"

    def _sentence(self, pose: Pose, shown: Array, visible: bool) -> str:
        if not len(self.goal_points):
            return never_seen()
        if not visible:
            return out_of_view(bearing_to(pose, self.goal_points))
        distance = np.hypot(shown[:, 0] - pose.x, shown[:, 1] - pose.y).min()
        return in_view(bearing_to(pose, shown), float(distance))

    def _choose(self, seen: OccupancyMap, pose: Pose) -> Move:
        if len(self.goal_points):
            return self._approach(seen, pose)
        rotation = seen.unexplored_rotation(pose)
        return explore(seen, pose, self.limits) if rotation is None else Move(rotation, 0.0)

    def _approach(self, seen: OccupancyMap, pose: Pose) -> Move:
        """Towards the nearest place within reach of what was seen of the goal."""
        bearing = bearing_to(pose, self.goal_points)
        for clearance in CLEARANCES:
            space = seen.space(pose, clearance=clearance)
            field = distance_field(space, within(space, self.goal_points, self.near))
            here = field[space.index(np.array([pose.x, pose.y]))]
            if here == 0.0:
                # it stands where it meant to, yet the goal was not reached: closer, then
                self.near = max(0.3, self.near - 0.25)
            elif np.isfinite(here) and (move := best_move(space, field, pose, self.limits, bearing)):
                return move
        return Move(TURN_STEP * round(bearing / TURN_STEP) or 90, FORWARD_STEP)
