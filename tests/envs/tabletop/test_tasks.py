from dataclasses import replace

import numpy as np
import pytest

from lookact.envs.tabletop.tasks import TASKS, Situation, behind, placed, progress, succeeded

START = Situation(
    tool=np.array([0.45, 0.0, 0.2]),
    object=np.array([0.5, 0.1, 0.022]),
    target=np.array([0.5, -0.1, 0.0]),
    rest=0.022,
    held=False,
    touched=False,
)


def test_pick_and_place_rises_from_stage_to_stage():
    at_object = replace(START, tool=START.object)
    held = replace(at_object, held=True, touched=True)
    raised = START.object + np.array([0, 0, 0.05])
    lifted = replace(held, object=raised, tool=raised)
    above = np.array([0.5, -0.1, 0.08])
    over = replace(lifted, object=above, tool=above)
    on_stand = np.array([0.5, -0.1, 0.052])
    down = replace(over, object=on_stand, tool=on_stand)
    done = replace(down, held=False, touched=False)
    stages = [progress("pick_place", now) for now in (START, at_object, held, lifted, over, down, done)]
    assert np.all(np.diff(stages) > 0.04)
    assert stages[1] == pytest.approx(0.25)
    assert stages[2] == pytest.approx(0.35)
    assert stages[4] == pytest.approx(0.75 + 0.1 * (1 - 0.028 / 0.06))
    assert stages[-2:] == [0.9, 1.0]


def test_an_object_pushed_beside_or_against_the_stand_is_not_placed():
    assert not placed(replace(START, object=np.array([0.5, -0.1, 0.022])))
    assert not placed(replace(START, object=np.array([0.5, -0.05, 0.052])))
    assert placed(replace(START, object=np.array([0.51, -0.09, 0.053])))


def test_a_stacked_object_must_lie_within_the_block_on_its_top():
    block = replace(START, support=0.044, room=0.018)
    assert placed(replace(block, object=np.array([0.51, -0.09, 0.066])))
    assert not placed(replace(block, object=np.array([0.515, -0.085, 0.066])))
    assert not placed(replace(block, object=np.array([0.5, -0.1, 0.052])))


def test_a_drawer_is_open_where_its_handle_has_come_and_progress_follows_it():
    def at(y: float) -> float:
        return progress("open_drawer", replace(START, object=np.array([0.5, y, 0.062]), tool=np.array([0.5, y, 0.062])))

    assert at(0.0) == pytest.approx(0.25)
    assert at(-0.05) == pytest.approx(0.25 + 0.35)
    assert at(-0.084) == pytest.approx(0.25 + 0.7 * 0.84)
    assert at(-0.086) == 1.0


def test_a_hand_that_is_turned_wrong_is_less_near():
    near = replace(START, tool=START.object)
    assert progress("pick_place", near) == pytest.approx(0.25)
    assert progress("pick_place", replace(near, misaligned=-0.5)) == pytest.approx(0.25 * 0.85)


def test_push_is_done_on_the_mark_and_starts_behind_the_object():
    assert behind(START) == pytest.approx([0.5, 0.16, 0.015])
    near = replace(START, object=np.array([0.5, -0.07, 0.022]))
    assert succeeded("push", near)
    assert progress("push", replace(START, object=np.array([0.5, 0.0, 0.022]))) > progress("push", START)


def test_reach_is_done_above_the_object():
    assert succeeded("reach", replace(START, tool=START.object + np.array([0, 0.02, 0.05])))
    assert not succeeded("reach", replace(START, tool=START.object + np.array([0, 0.03, 0.05])))


@pytest.mark.parametrize("task", TASKS)
def test_progress_stays_between_nothing_and_done(task):
    rng = np.random.default_rng(0)
    for _ in range(300):
        held = bool(rng.integers(2))
        spot = rng.uniform([0.3, -0.3, 0.01], [0.7, 0.3, 0.3])
        now = replace(START, tool=spot, object=rng.uniform([0.3, -0.3, 0.02], [0.7, 0.3, 0.2]), held=held, touched=held)
        value = progress(task, now)
        assert 0 <= value <= 1
        assert (value == 1) == succeeded(task, now)
