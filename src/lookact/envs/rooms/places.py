"""The simulator under its former path and names."""

from lookact.envs.rooms.simulator import CAMERA_HEIGHT as CAMERA_HEIGHT
from lookact.envs.rooms.simulator import Simulator as Place
from lookact.envs.rooms.simulator import View as View
from lookact.envs.rooms.simulator import generated_simulator as generated_place
from lookact.envs.rooms.simulator import recorded_simulator as recorded_place
from lookact.envs.rooms.simulator import render_view as look

__all__ = ["Place", "generated_place", "look", "recorded_place"]
