import re

import numpy as np
import pytest

from lookact.envs.tabletop.language import HELD_OUT_WORDINGS, LONGEST, WORDINGS, phrase
from lookact.envs.tabletop.randomise import instruction_corpus, name_words
from lookact.envs.tabletop.scene import COLOURS, LONG_SHAPES, SHAPES
from lookact.envs.tabletop.tasks import TASKS


@pytest.mark.parametrize("task", TASKS)
def test_every_wording_is_used_and_held_out_ones_only_when_asked(task):
    rng = np.random.default_rng(0)
    said = {
        held_out: {phrase(task, object="red cube", target="blue", held_out=held_out, rng=rng) for _ in range(300)}
        for held_out in (False, True)
    }
    assert len(said[False]) == len(WORDINGS[task]) >= 10
    assert len(said[True]) == len(HELD_OUT_WORDINGS[task]) >= 4
    assert not said[False] & said[True]
    name = "blue drawer" if task.endswith("drawer") else "red cube"
    assert all(name in text for text in said[False] | said[True])


@pytest.mark.parametrize("task", TASKS)
def test_held_out_wordings_have_words_that_training_never_says(task):
    read = {word for text in instruction_corpus(task) for word in re.findall(r"\w+", text)}
    for wording in HELD_OUT_WORDINGS[task]:
        assert set(re.findall(r"\w+", wording)) - read - {"object", "target"}, wording


@pytest.mark.parametrize("task", ["push", "pick_place", "stack"])
def test_both_orders_of_object_and_target_are_trained_and_tested(task):
    for wordings in (WORDINGS[task], HELD_OUT_WORDINGS[task]):
        first = {wording.index("{object}") < wording.index("{target}") for wording in wordings}
        assert first == {True, False}


def test_the_target_is_named_as_what_it_is():
    rng = np.random.default_rng(0)
    assert "blue stand" in phrase("pick_place", object="red cube", target="blue", held_out=False, rng=rng)
    assert "blue block" in phrase("stack", object="red cube", target="blue", held_out=False, rng=rng)
    assert "blue mark" in phrase("push", object="red cube", target="blue", held_out=False, rng=rng)


def test_colours_and_kinds_of_target_tell_things_apart():
    assert set(name_words()) == {*COLOURS, "mark", "stand", "block", "drawer"}


def test_no_instruction_is_longer_than_its_space():
    colour, shape = max(COLOURS, key=len), max((*SHAPES, *LONG_SHAPES), key=len)
    for wordings in (*WORDINGS.values(), *HELD_OUT_WORDINGS.values()):
        for wording in wordings:
            assert len(wording.format(object=f"{colour} {shape}", target=f"{colour} drawer")) <= LONGEST
