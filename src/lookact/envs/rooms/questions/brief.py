"""Questions in very few words, for models too small to read VSI-Bench's own: every sentence holds one thing."""

from __future__ import annotations

import re

from lookact.envs.rooms.scene import CLASSES, label_text
from lookact.envs.rooms.vsi import Question, format_prompt

DIRECTION = "By the {0}. Facing the {1}. Where is the {2}?"
BRIEF = {
    "object_counting": "How many of the {0}?",
    "object_abs_distance": "How far is the {0}? From the {1}?",
    "object_size_estimation": "How long is the {0}?",
    "room_size_estimation": "How large is the room?",
    "object_rel_distance": "What is nearest to the {4}?",
    "object_rel_direction_easy": DIRECTION,
    "object_rel_direction_medium": DIRECTION,
    "object_rel_direction_hard": DIRECTION,
}
"""By type, with the things in the order in which the long question names them."""
LABELS = re.compile(r"\b(" + "|".join(sorted(map(label_text, CLASSES), key=len, reverse=True)) + r")\b")


def brief(question: Question) -> str:
    """The question in sentences of one thing each; types that need more words stay as they are."""
    pattern = BRIEF.get(question.question_type)
    things = LABELS.findall(question.question)
    if pattern is None or len(things) < len(re.findall(r"\{", pattern)):
        return format_prompt(question)
    options = [f"{option.replace('. ', ' ', 1)}." for option in question.options or ()]
    return " ".join([pattern.format(*things), *options])
