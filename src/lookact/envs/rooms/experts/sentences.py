"""The reasoning templates of the experts: whether, where and how far a thing is seen."""

from __future__ import annotations

import math

from lookact.envs.rooms.space import SINGLE_ROUNDING

AHEAD_DEGREES = 15.0
BEHIND_DEGREES = 135.0
NEAR_METERS = 2.0
BEARING_ROUNDING = 1e-4
"""Degrees: a bearing rests on depths."""


def in_view(bearing: float, distance: float) -> str:
    """6 of them: near or far, and left, ahead or right. Bearing in degrees, positive to the left."""
    return f"I see it {'near' if distance < NEAR_METERS - SINGLE_ROUNDING else 'far'} {_side(bearing)}."


def out_of_view(bearing: float) -> str:
    """4 of them, once it has been seen."""
    return f"It is out of view {_side(bearing)}."


def never_seen() -> str:
    return "Not in view."


def _side(bearing: float) -> str:
    if abs(bearing) > BEHIND_DEGREES + BEARING_ROUNDING:
        return "behind"
    if abs(bearing) <= AHEAD_DEGREES + BEARING_ROUNDING:
        return "ahead"
    return "on the left" if bearing > 0 else "on the right"


def located(label: str, bearing: float, distance: float) -> str:
    """Where a thing stands that has just come into view, to half a metre."""
    return f"The {label} is {_half_metres(distance):g} m {_side(bearing)}."


def _half_metres(distance: float) -> float:
    """To half a metre, a quarter upwards."""
    return math.floor(2 * (distance + SINGLE_ROUNDING) + 0.5) / 2


def counted(number: int, total: int) -> str:
    """How many of the things to be counted this view shows for the first time, and how many that makes so far."""
    return f"{number} new, {total} so far."


def apart(label: str, distance: float) -> str:
    """How far an option is from the thing that a question asks about, to half a metre."""
    return f"{label}: {_half_metres(distance):g} m."


def concluded(choice: str) -> str:
    """What the answer's letter stands for."""
    return f"It is {choice}."


def room_ahead(distance: float) -> str:
    """How far the room goes on, to half a metre."""
    return f"The wall is {_half_metres(distance):g} m ahead."


def still_looking(label: str | None) -> str:
    """1 a label, and 1 for the room as a whole."""
    return f"No {label} seen yet." if label else "Still looking around."


def enough_seen() -> str:
    return "I have seen enough."


def guessed() -> str:
    return "I must guess."
