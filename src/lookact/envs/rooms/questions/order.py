"""Questions about which things come into view first along the recorded walk."""

from __future__ import annotations

import numpy as np

from lookact.envs.rooms.questions.facts import Draft, Facts, choose, spoken

KINDS = 4
TRIES = 400


def obj_appearance_order(facts: Facts, rng: np.random.Generator, count: int) -> list[Draft]:
    """The order in which four kinds first appear. Each is in plain view before the next is even glimpsed."""
    if not len(facts.scene.faces) or not len(facts.scene.trajectory):
        return []
    labels, seen = _kinds(facts)
    if len(labels) < KINDS:
        return []
    picks = rng.random((TRIES, len(labels))).argsort(axis=1)[:, :KINDS]
    picks = np.take_along_axis(picks, seen[picks, 0].argsort(axis=1), axis=1)
    clear = (seen[picks[:, :-1], 1] < seen[picks[:, 1:], 0]).all(axis=1)
    drafts = []
    for chosen in list(dict.fromkeys(tuple(row) for row in picks[clear]))[:count]:
        names = [spoken(labels[index]) for index in chosen]
        listed = [names[place] for place in rng.permutation(KINDS)]
        options, letter = choose(rng, ", ".join(names), _other_orders(rng, names))
        text = f"In the video, in what order do these kinds of things first come into view: {', '.join(listed)}?"
        drafts.append(Draft(text, letter, options))
    return drafts


def _kinds(facts: Facts) -> tuple[list[str], np.ndarray]:
    """Labels, and the frames (k, 2) in which a member of each is first glimpsed and first in plain view.

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
        order = ", ".join(names[place] for place in rng.permutation(KINDS))
        if order != right:
            wrong[order] = None
    return list(wrong)
