"""Turns by name, and many straight motions at once against one at a time."""

import numpy as np
import pytest

from lookact.envs.rooms.generate import generate_room
from lookact.envs.rooms.questions.driving import Route, bearing, drive, march, standing_places, turn_of
from lookact.envs.rooms.questions.facts import Facts
from lookact.envs.rooms.space import advance


def test_turns_have_names_within_thirty_degrees() -> None:
    angles = np.array([90, 61, 119, -90, 270, 180, -151, 540, 0, 59, 121, 149, -40])
    assert turn_of(angles).tolist() == [0, 0, 0, 1, 1, 2, 2, 2, -1, -1, -1, -1, -1]


@pytest.mark.parametrize("off", [0.0, 1e-12, -1e-12])
def test_a_turn_just_thirty_degrees_off_has_a_name(off: float) -> None:
    assert turn_of(np.array([60, 120, -60, 150]) + off).tolist() == [0, 0, 1, 2]


def test_bearings_are_counter_clockwise_from_x() -> None:
    assert bearing(np.array([[1.0, 0], [0, 2], [-3, 0], [1, -1]])).tolist() == [0, 90, 180, -45]


@pytest.mark.parametrize("seed", range(4))
def test_many_motions_end_where_single_ones_do(seed: int) -> None:
    space = Facts(generate_room(seed)).space
    rng = np.random.default_rng(seed)
    rows, columns = np.nonzero(space.free)
    picks = rng.integers(len(rows), size=40)
    starts = np.stack([space.centre(int(rows[pick]), int(columns[pick])) for pick in picks])
    ends = starts + rng.uniform(-4, 4, starts.shape)
    single = np.stack([advance(space, start, end)[0] for start, end in zip(starts, ends)])
    gaps = np.linalg.norm(march(space, starts, ends) - single, axis=1)
    # steps of half a cell may overlook a blocked corner now and then; `drive` has the last word
    assert np.median(gaps) <= 0.05
    assert (gaps < 0.08).mean() > 0.8


def test_robots_stand_on_free_floor_beside_their_thing() -> None:
    facts = Facts(generate_room(3))
    stands = standing_places(facts)
    assert stands.shape == (len(facts.unique), 2)
    assert all(facts.space.contains(place) for place in stands[~np.isnan(stands[:, 0])])


def test_a_thing_nobody_can_stand_beside_starts_no_route() -> None:
    facts = Facts(generate_room(3))
    nowhere = np.full((len(facts.unique), 2), np.nan)
    assert drive(facts, nowhere, Route(0, 1, (2,))) is None
