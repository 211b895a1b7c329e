"""Policies that know nothing, for floors of comparison and for noise: uniform over an expert's moves."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np

from lookact.envs.rooms.experts.plan import FORWARD_STEP, TURN_STEP
from lookact.envs.rooms.motion import Limits, Move
from lookact.envs.rooms.navigation import Navigation
from lookact.envs.rooms.spatial_vqa import SpatialVQA
from lookact.text.actions import ANSWER_KEY


def random_move(rng: np.random.Generator, limits: Limits) -> Move:
    """Any rotation and any walk within `limits`, in an expert's steps, standing still included."""
    turns = math.floor(limits.rotation_degrees / TURN_STEP)
    walks = math.floor(limits.forward_meters / FORWARD_STEP)
    return Move(int(rng.integers(-turns, turns + 1)) * TURN_STEP, int(rng.integers(walks + 1)) * FORWARD_STEP)


def random_answer(rng: np.random.Generator, options: Sequence[str] | None) -> str:
    """Any of the options' letters, or a whole number from 1 to 30, as a reply."""
    answer = str(rng.integers(1, 31)) if options is None else options[int(rng.integers(len(options)))][0]
    return json.dumps({ANSWER_KEY: answer})


def random_reply(world: Navigation | SpatialVQA, rng: np.random.Generator) -> str:
    """Valid JSON and nothing else; questions are answered with probability 1/3, and always in the last turn."""
    if isinstance(world, SpatialVQA) and (world.turn + 1 >= world.max_turns or rng.random() < 1 / 3):
        return random_answer(rng, world.inquiry.question.options)
    return random_move(rng, world.limits).json()
