import numpy as np
import pytest

from lookact.envs.tabletop.randomise import (
    GROUNDS,
    HELD_OUT_PAIRS,
    SEEN_SURFACES,
    SPACING,
    TOOL_START,
    Randomisation,
    draw_look,
    draw_start,
)
from lookact.envs.tabletop.scene import HEAD_EYE

ALL = Randomisation(True, True, True, True, True)
NOTHING = Randomisation(False, False, False, False, False)


def looks(change: Randomisation, shift: str, things: int = 1) -> list:
    return [draw_look(seed, change, shift, things=things, clutter=4) for seed in range(60)]


def test_the_same_seed_draws_the_same():
    first, second = (draw_look(7, ALL, "none", things=2, clutter=4) for _ in range(2))
    assert first.objects == second.objects
    assert first.clutter == second.clutter
    assert np.array_equal(first.eye, second.eye)
    assert np.array_equal(
        draw_start(7, "push", "none", things=2).targets, draw_start(7, "push", "none", things=2).targets
    )


def test_with_everything_off_every_scene_looks_alike():
    assert {
        (look.surfaces, look.objects, look.targets, look.clutter, look.fovy) for look in looks(NOTHING, "none")
    } == {((0, 4, 1), (("red", "cube"),), ("blue",), (), 37.0)}


def test_vision_shows_only_surfaces_and_camera_places_never_trained_on():
    trained, shifted = looks(ALL, "none"), looks(NOTHING, "vision")
    assert all(surface < SEEN_SURFACES for look in trained for surface in look.surfaces)
    assert all(surface >= SEEN_SURFACES for look in shifted for surface in look.surfaces)
    assert max(np.linalg.norm(look.eye - HEAD_EYE) for look in trained) <= 0.04
    assert min(np.linalg.norm(look.eye - HEAD_EYE) for look in shifted) >= 0.06
    assert min(look.lights.max() for look in shifted) > max(look.lights.max() for look in trained) - 0.2
    assert max(look.lights.min() for look in shifted) < min(look.lights.min() for look in trained)


def test_semantics_asks_only_for_pairs_never_trained_on():
    assert not {look.objects[0] for look in looks(ALL, "none")} & set(HELD_OUT_PAIRS)
    assert {look.objects[0] for look in looks(ALL, "semantics")} <= set(HELD_OUT_PAIRS)


def test_training_never_shows_a_held_out_pair():
    for look in looks(ALL, "none", things=3):
        assert not set(look.objects) & set(HELD_OUT_PAIRS)
        assert not {(colour, shape) for colour, shape, _, _ in look.clutter} & set(HELD_OUT_PAIRS)


def test_the_instruction_is_never_ambiguous():
    for shift in ("none", "semantics"):
        for look in looks(ALL, shift, things=3):
            assert len({colour for colour, _ in look.objects}) == 3
            assert len(set(look.targets)) == 3
            assert look.targets[0] != look.objects[0][0]


@pytest.mark.parametrize("task", ["reach", "push", "pick_place"])
def test_execution_starts_where_training_never_does(task):
    low, high = (np.array(corner) for corner in GROUNDS[task])
    for seed in range(60):
        trained, shifted = (draw_start(seed, task, shift, things=1) for shift in ("none", "execution"))
        spot, other = trained.objects[0, :2], shifted.objects[0, :2]
        assert np.all((spot >= low) & (spot <= high))
        assert np.any((other < low) | (other > high))
        assert np.all(np.abs(trained.tool - TOOL_START) <= [0.03, 0.03, 0.02])
        assert np.all(np.abs(shifted.tool - TOOL_START) >= [0.04, 0.06, 0.03])


def test_things_lie_apart():
    for seed in range(40):
        for task in ("push", "pick_place"):
            start = draw_start(seed, task, "none", things=3)
            places = np.concatenate([start.objects[:, :2], start.targets])
            gaps = np.linalg.norm(places[:, None] - places[None], axis=-1)
            assert gaps[np.triu_indices(6, 1)].min() > SPACING
