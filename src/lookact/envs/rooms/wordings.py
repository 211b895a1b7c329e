"""Default question templates and types, for configs that load nothing heavy."""

from __future__ import annotations

from lookact.text.answers import QUESTION_TYPES

QUESTIONS = (
    "How do I get to the {label}?",
    "Go to the {label}.",
    "Find the {label}.",
    "Walk to the {label}.",
)
"""Wordings of the way to an object."""
TYPES = tuple(name for name in QUESTION_TYPES if name != "obj_appearance_order")
"""Asked by default: in which order things appear in a recorded walk is not for this walker to see."""
