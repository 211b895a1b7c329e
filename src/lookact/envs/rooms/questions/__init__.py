"""Questions of VSI-Bench's ten types over any annotated room, with answers computed from its geometry.

Whatever has no clear answer is not asked: things that share a name, near ties, directions close to a boundary,
routes that mark_blocked into something. Options are shuffled, and directions and turns are drawn before the things that
show them, so that no constant guess pays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from lookact.envs.rooms.questions.facts import Draft, Facts
from lookact.envs.rooms.questions.measure import (
    object_abs_distance,
    object_counting,
    object_size_estimation,
    room_size_estimation,
)
from lookact.envs.rooms.questions.relations import (
    DISTANCE_CHOICES,
    obj_appearance_order,
    object_rel_direction_easy,
    object_rel_direction_hard,
    object_rel_direction_medium,
    object_rel_distance,
)
from lookact.envs.rooms.questions.route import route_planning
from lookact.envs.rooms.scene import CLASSES, Scene, label_text
from lookact.envs.rooms.vsi import Question, format_prompt
from lookact.envs.rooms.wordings import WORDINGS
from lookact.errors import ConfigError
from lookact.seeding import derive, numpy_rng

__all__ = ["ALL", "ask", "brief", "named_labels"]

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
DIRECTION = "By the {0}. Facing the {1}. Where is the {2}?"
BRIEF = {
    "object_counting": "How many of the {0}?",
    "object_abs_distance": "How far is the {0}? From the {1}?",
    "object_size_estimation": "How long is the {0}?",
    "room_size_estimation": "How large is the room?",
    "object_rel_distance": "What is nearest to the {target}?",
    "object_rel_direction_easy": DIRECTION,
    "object_rel_direction_medium": DIRECTION,
    "object_rel_direction_hard": DIRECTION,
}
"""By type, with the things in the order in which the long question names them; the last one is also `target`."""
LABELS = re.compile(r"\b(" + "|".join(sorted(map(label_text, CLASSES), key=len, reverse=True)) + r")\b")


def ask(
    scene: Scene,
    *,
    seed: int,
    types: Sequence[str] = ALL,
    per_type: int = 1,
    paraphrase: bool = False,
    distance_choices: int = DISTANCE_CHOICES,
) -> list[Question]:
    """Up to `per_type` different questions of each type; fewer, or none, where the scene holds no clear ones.

    In VSI-Bench's own wording, or in any of several; `distance_choices` options for what is closest.
    """
    unknown = [name for name in types if name not in FAMILIES]
    if unknown:
        raise ConfigError(f"question type '{unknown[0]}' is unknown; use one of {', '.join(ALL)}")
    facts = Facts(scene)
    families = FAMILIES | {"object_rel_distance": partial(object_rel_distance, choices=distance_choices)}
    questions = []
    for name in types:
        drafts = families[name](facts, numpy_rng(seed, "ask", scene.id, name), per_type)
        for number, draft in enumerate(drafts):
            # 53 bits survive readers that keep numbers as doubles
            key = derive(seed, "question", scene.id, name, number) >> 10
            text = WORDINGS[name][key % len(WORDINGS[name]) if paraphrase else 0].format(**draft.things)
            questions.append(Question(key, "generated", scene.id, name, text, draft.ground_truth, draft.options))
    return questions


def named_labels(question: Question) -> list[str]:
    """The things that a question's sentence names, in their order."""
    return LABELS.findall(question.question)


def brief(question: Question) -> str:
    """The question in sentences of one thing each; types that need more words stay as they are."""
    pattern = BRIEF.get(question.question_type)
    things = named_labels(question)
    if pattern is None or len(things) < len(re.findall(r"\{", pattern)):
        return format_prompt(question)
    options = [f"{option.replace('. ', ' ', 1)}." for option in question.options or ()]
    return " ".join([pattern.format(*things, target=things[-1] if things else ""), *options])
