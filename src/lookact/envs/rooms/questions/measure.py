"""Questions with a numeric answer: object count, absolute distance, object size, room size."""

from __future__ import annotations

import itertools

import numpy as np

from lookact.envs.rooms.questions.facts import Draft, Facts, polygon_area
from lookact.envs.rooms.scene import label_text
from lookact.envs.rooms.space import ROUNDING

NEAREST = 0.3
"""Metres; nearer things are as good as touching, and a tenth of a metre would be too coarse for them."""


def object_counting(facts: Facts, rng: np.random.Generator, count: int) -> list[Draft]:
    """Kinds with several members; kinds with one only where there are no others."""
    kinds = {label: len(members) for label, members in facts.by_label.items()}
    left = {label: members for label, members in kinds.items() if members > 1} or kinds
    drafts: list[Draft] = []
    while left and len(drafts) < count:
        # the number is drawn first: twos would drown the rest
        number = rng.choice(sorted(set(left.values())))
        label = rng.choice([label for label, members in left.items() if members == number])
        drafts.append(Draft({"thing": label_text(label)}, str(left.pop(label))))
    return drafts


def object_abs_distance(facts: Facts, rng: np.random.Generator, count: int) -> list[Draft]:
    """Closest points of two things that are each the only one of their kind."""
    pairs = [pair for pair in itertools.combinations(facts.unique, 2) if facts.gaps[pair] >= NEAREST - ROUNDING]
    drafts = []
    for choice in rng.permutation(len(pairs))[:count]:
        first, second = (pairs[choice][place] for place in rng.permutation(2))
        things = {"first": facts.name(first), "second": facts.name(second)}
        drafts.append(Draft(things, _format_number(facts.gaps[first, second], 1)))
    return drafts


def object_size_estimation(facts: Facts, rng: np.random.Generator, count: int) -> list[Draft]:
    """The longest side of a thing's box, in centimetres."""
    drafts = []
    for index in (facts.unique[place] for place in rng.permutation(len(facts.unique))[:count]):
        longest = 100 * float(facts.scene.boxes[index].size.max())
        drafts.append(Draft({"thing": facts.name(index)}, _format_number(longest, 0)))
    return drafts


def room_size_estimation(facts: Facts, rng: np.random.Generator, count: int) -> list[Draft]:
    """The floor plan's area; a scene has one such question."""
    if len(facts.scene.floor) < 3 or not count:
        return []
    return [Draft({}, _format_number(polygon_area(facts.scene.floor), 1))]


def _format_number(number: float, digits: int) -> str:
    """A number as an answer, halves upwards."""
    return f"{number + ROUNDING:.{digits}f}"
