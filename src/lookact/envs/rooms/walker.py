"""A body with a camera in a place: where it stands, what it sees, how far it came."""

from __future__ import annotations

from lookact.envs.rooms.motion import Limits, Motion, Move, Pose, apply_move
from lookact.envs.rooms.places import Place, View, look
from lookact.envs.rooms.render import Camera


class Walker:
    """Keeps count of metres and collisions over an episode."""

    def __init__(self, place: Place, start: Pose, camera: Camera, limits: Limits) -> None:
        self.place, self.camera, self.limits = place, camera, limits
        self.pose: Pose = start
        self.view: View = look(place, start, camera)
        self.path_length = 0.0
        self.collisions = 0

    def move(self, move: Move) -> Motion:
        """Go, and look again."""
        motion = apply_move(self.place.space, self.pose, move)
        self.pose = motion.pose
        self.view = look(self.place, self.pose, self.camera)
        self.path_length += motion.travelled
        self.collisions += motion.collided
        return motion
