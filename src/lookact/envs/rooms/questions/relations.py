"""Multiple-choice questions: relative distance, relative direction, and order of appearance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.questions.facts import Draft, Facts, choose, wrap_degrees
from lookact.envs.rooms.scene import label_text
from lookact.envs.rooms.space import ROUNDING

MARGIN_METRES = 0.15
MARGIN_SHARE = 0.15
"""The second closest must be further off by both margins."""
MARGIN_DEGREES = 15.0
"""No direction is asked that lies this close to the edge of its sector."""
ARM = 0.5
"""Metres; things nearer than this to the one who stands have no clear direction."""
TRIES = 40

# degrees from the facing direction, left is positive: (from, to, name)
Sectors = tuple[tuple[float, float, str], ...]
EASY: Sectors = ((0, 180, "left"), (-180, 0, "right"))
MEDIUM: Sectors = ((0, 135, "left"), (-135, 0, "right"), (135, 180, "back"), (-180, -135, "back"))
HARD: Sectors = ((0, 90, "front-left"), (-90, 0, "front-right"), (90, 180, "back-left"), (-180, -90, "back-right"))
DISTANCE_CHOICES = 4
"""VSI-Bench's own number."""
ORDER_KINDS = 4
ORDER_TRIES = 400


def object_rel_distance(
    facts: Facts, rng: np.random.Generator, count: int, choices: int = DISTANCE_CHOICES
) -> list[Draft]:
    """Which of so many kinds is closest to a thing, measured to the nearest member of each kind."""
    labels = list(facts.by_label)
    if len(labels) <= choices or not facts.unique:
        return []
    drafts: dict[tuple[int, frozenset[str]], Draft] = {}
    for _ in range(TRIES * count):
        target = facts.unique[rng.integers(len(facts.unique))]
        kinds = [label for label in labels if label != facts.scene.boxes[target].label]
        chosen = [kinds[place] for place in rng.permutation(len(kinds))[:choices]]
        gaps = [min(facts.gaps[target, index] for index in facts.by_label[label]) for label in chosen]
        best, second = sorted(gaps)[:2]
        if (
            second - best < max(MARGIN_METRES, MARGIN_SHARE * second) - ROUNDING
            or (target, frozenset(chosen)) in drafts
        ):
            continue
        names = [label_text(label) for label in chosen]
        nearest = names[int(np.argmin(gaps))]
        options, letter = choose(rng, nearest, [name for name in names if name != nearest])
        things = {"choices": ", ".join(names), "target": facts.name(target)}
        drafts[target, frozenset(chosen)] = Draft(things, letter, options)
        if len(drafts) == count:
            break
    return list(drafts.values())


def object_rel_direction_easy(facts: Facts, rng: np.random.Generator, count: int) -> list[Draft]:
    """Left or right."""
    return _directions(facts, rng, count, EASY)


def object_rel_direction_medium(facts: Facts, rng: np.random.Generator, count: int) -> list[Draft]:
    """Left, right or back."""
    return _directions(facts, rng, count, MEDIUM)


def object_rel_direction_hard(facts: Facts, rng: np.random.Generator, count: int) -> list[Draft]:
    """One of the four quadrants."""
    return _directions(facts, rng, count, HARD)


def _directions(facts: Facts, rng: np.random.Generator, count: int, sectors: Sectors) -> list[Draft]:
    names = list(dict.fromkeys(name for _, _, name in sectors))
    triples, answers = clear_triples(facts, sectors, names)
    piles = [list(rng.permutation(np.flatnonzero(answers == answer))) for answer in range(len(names))]
    # every answer in turn until one runs out: a scene that lacks one would make the others a better guess
    rounds = min(len(pile) for pile in piles)
    order = [answer for _ in range(rounds) for answer in rng.permutation(len(names))]
    drafts = []
    for wanted in order[:count]:
        here, there, what = (facts.name(facts.unique[place]) for place in triples[piles[wanted].pop()])
        options, letter = choose(rng, names[wanted], [name for name in names if name != names[wanted]])
        drafts.append(Draft({"here": here, "there": there, "what": what}, letter, options))
    return drafts


def clear_triples(facts: Facts, sectors: Sectors, names: list[str]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Triples (k, 3) of places in `facts.unique` (stand, face, seek) with a clear answer, and the answers (k,)."""
    centres = facts.centres[facts.unique]
    offsets = centres[None] - centres[:, None]
    far = np.hypot(offsets[..., 0], offsets[..., 1]) >= ARM - ROUNDING
    bearings = np.degrees(np.arctan2(offsets[..., 1], offsets[..., 0]))
    angles = wrap_degrees(bearings[:, None, :] - bearings[:, :, None])
    answers = np.full(angles.shape, -1)
    for low, high, name in sectors:
        answers[(angles >= low) & (angles < high)] = names.index(name)
    for edge in _edges(sectors):
        answers[np.abs(wrap_degrees(angles - edge)) < MARGIN_DEGREES - ROUNDING] = -1
    answers[~(far[:, :, None] & far[:, None, :])] = -1
    places = np.arange(len(centres))
    answers[:, places, places] = -1
    triples = np.argwhere(answers >= 0)
    return triples, answers[tuple(triples.T)]


def _edges(sectors: Sectors) -> list[float]:
    """Where one name gives way to another; sectors of one name may touch."""
    ending = {high % 360: name for _, high, name in sectors}
    return [low for low, _, name in sectors if ending[low % 360] != name]


def obj_appearance_order(facts: Facts, rng: np.random.Generator, count: int) -> list[Draft]:
    """The order in which four kinds first appear. Each is in plain view before the next is even visible_boxes."""
    if not len(facts.scene.faces) or not len(facts.scene.trajectory):
        return []
    labels, seen = _kinds(facts)
    if len(labels) < ORDER_KINDS:
        return []
    picks = rng.random((ORDER_TRIES, len(labels))).argsort(axis=1)[:, :ORDER_KINDS]
    picks = np.take_along_axis(picks, seen[picks, 0].argsort(axis=1), axis=1)
    clear = (seen[picks[:, :-1], 1] < seen[picks[:, 1:], 0]).all(axis=1)
    drafts = []
    for chosen in list(dict.fromkeys(tuple(row) for row in picks[clear]))[:count]:
        names = [label_text(labels[index]) for index in chosen]
        listed = [names[place] for place in rng.permutation(ORDER_KINDS)]
        options, letter = choose(rng, ", ".join(names), _other_orders(rng, names))
        drafts.append(Draft({"things": ", ".join(listed)}, letter, options))
    return drafts


def _kinds(facts: Facts) -> tuple[list[str], np.ndarray]:
    """Labels, and the frames (k, 2) in which a member of each is first visible_boxes and first in plain view.

    Kinds that are never plainly seen, or have a member the mesh does not show, are left out.
    """
    shown = set(np.unique(facts.scene.instances).tolist())
    labels, frames = [], []
    for label, members in facts.by_label.items():
        seen = facts.first_seen[members].min(axis=0)
        if np.isfinite(seen).all() and shown.issuperset(members):
            labels.append(label)
            frames.append(seen)
    return labels, np.array(frames).reshape(-1, 2)


def _other_orders(rng: np.random.Generator, names: list[str]) -> list[str]:
    """Three different wrong orders."""
    right = ", ".join(names)
    wrong: dict[str, None] = {}
    while len(wrong) < 3:
        order = ", ".join(names[place] for place in rng.permutation(ORDER_KINDS))
        if order != right:
            wrong[order] = None
    return list(wrong)
