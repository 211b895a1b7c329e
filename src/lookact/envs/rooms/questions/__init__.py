"""Questions of VSI-Bench's ten types over any annotated room, with answers computed from its geometry.

Whatever has no clear answer is not asked: things that share a name, near ties, directions close to a boundary,
routes that mark_blocked into something. Options are shuffled, and directions and turns are drawn before the things that
show them, so that no constant guess pays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lookact.envs.rooms.questions.facts import Draft, Facts
from lookact.envs.rooms.questions.measure import (
    object_abs_distance,
    object_counting,
    object_size_estimation,
    room_size_estimation,
)
from lookact.envs.rooms.questions.relations import (
    obj_appearance_order,
    object_rel_direction_easy,
    object_rel_direction_hard,
    object_rel_direction_medium,
    object_rel_distance,
)
from lookact.envs.rooms.questions.route import route_planning
from lookact.envs.rooms.scene import Scene
from lookact.envs.rooms.vsi import Question
from lookact.errors import ConfigError
from lookact.seeding import derive, numpy_rng

__all__ = ["ALL", "ask"]

FAMILIES: dict[str, Callable[[Facts, np.random.Generator, int], list[Draft]]] = {
    "object_counting": object_counting,
    "object_abs_distance": object_abs_distance,
    "object_size_estimation": object_size_estimation,
    "room_size_estimation": room_size_estimation,
    "object_rel_distance": object_rel_distance,
    "object_rel_direction_easy": object_rel_direction_easy,
    "object_rel_direction_medium": object_rel_direction_medium,
    "object_rel_direction_hard": object_rel_direction_hard,
    "route_planning": route_planning,
    "obj_appearance_order": obj_appearance_order,
}
ALL = tuple(FAMILIES)


def ask(scene: Scene, *, seed: int, types: Sequence[str] = ALL, per_type: int = 1) -> list[Question]:
    """Up to `per_type` different questions of each type; fewer, or none, where the scene holds no clear ones."""
    unknown = [name for name in types if name not in FAMILIES]
    if unknown:
        raise ConfigError(f"question type '{unknown[0]}' is unknown; use one of {', '.join(ALL)}")
    facts = Facts(scene)
    questions = []
    for name in types:
        drafts = FAMILIES[name](facts, numpy_rng(seed, "ask", scene.id, name), per_type)
        for number, draft in enumerate(drafts):
            # 53 bits survive readers that keep numbers as doubles
            key = derive(seed, "question", scene.id, name, number) >> 10
            options = draft.options
            questions.append(Question(key, "generated", scene.id, name, draft.question, draft.ground_truth, options))
    return questions
