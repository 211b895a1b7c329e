"""Policies that know nothing, for floors of comparison and for noise: uniform over an expert's moves."""

from __future__ import annotations

import math

import numpy as np

from lookact.envs.experts.plan import FORWARD_STEP, TURN_STEP
from lookact.envs.motion import Limits, Move


def random_move(rng: np.random.Generator, limits: Limits) -> Move:
    """Any rotation and any walk within `limits`, in an expert's steps, standing still included."""
    turns = math.floor(limits.rotation_degrees / TURN_STEP)
    walks = math.floor(limits.forward_meters / FORWARD_STEP)
    return Move(int(rng.integers(-turns, turns + 1)) * TURN_STEP, int(rng.integers(walks + 1)) * FORWARD_STEP)
