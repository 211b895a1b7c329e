"""The field's words: coined ones stand nowhere, and a setting's name has one meaning in all recipes."""

import importlib
import re
from collections import defaultdict
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

from lookact.cli.recipes import RECIPES
from lookact.config import settings
from lookact.config.values import options

ROOT = Path(__file__).parent.parent
COINED = re.compile(r"\b(eyes|glances?|gist|outlook|appraise|foresee|foretold|pupil|wander|lessons?)\b", re.IGNORECASE)
SEEDED = re.compile(r"\b(derive|numpy_rng|torch_rng)\([^()]*\)")
"""The name of a random stream is part of a run's numbers: it stays."""
FILES = [
    path
    for path in (*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md")
    if path != ROOT / "src/lookact/config/aliases.py"
]
TWO_MEANINGS = {
    "rows": "num_envs or batch_size",
    "entropy": "entropy_coef or target_entropy",
    "updates": "iterations or gradient_steps",
    "blame": "negative_advantage_weight",
    "units": "loss_on",
    "parity": "max_logprob_gap",
    "swap": "history_shuffle_prob",
    "easiest": "curriculum_start_fraction",
    "haste": "guess_fraction",
    "held": "sticky_action_prob",
    "enough": "target_accuracy",
    "peak": "reward_sharpness",
    "patience": "timeout_s",
    "spread": "std_schedule",
    "hold": "finetune",
    "chunk": "action_chunk",
    "looks": "pretraining images",
    "warm_start": "sft or bc",
}
"""Names that meant several things, or nothing to others, and what to call them."""


OTHER_RANGE = {"task", "reference", "kind", "hidden", "control"}
"""One meaning, other values by recipe: a task's name, a reference, the kind of a group, layer widths, actions."""


def leaves(recipe: str):
    return list(settings(importlib.import_module(RECIPES[recipe].rpartition(".")[0] + ".config").Config))


def plain_type(kind) -> str:
    """A type for comparing: choices in any order, and with or without None."""
    words = []
    for option in options(kind):
        choices = get_args(option) if get_origin(option) is Literal else ()
        words.append("choice: " + " ".join(sorted(map(str, choices))) if choices else str(option))
    return " or ".join(sorted(words))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_coined_word_stands_for_a_term_of_art(path):
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    found = [f"{path.name}:{number}: {line.strip()}" for number, line in lines if COINED.search(SEEDED.sub("", line))]
    assert not found


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_setting_has_a_name_of_two_meanings(recipe):
    found = {leaf.name for leaf in leaves(recipe) if set(leaf.name.split(".")) & set(TWO_MEANINGS)}
    assert not found


def test_a_settings_name_has_one_type_in_all_recipes():
    kinds = defaultdict(lambda: defaultdict(list))
    for recipe in RECIPES:
        for leaf in leaves(recipe):
            kinds[leaf.name.rpartition(".")[2]][plain_type(leaf.kind)].append(f"{recipe}: {leaf.name}")
    several = {name: dict(found) for name, found in kinds.items() if len(found) > 1 and name not in OTHER_RANGE}
    assert not several
