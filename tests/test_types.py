import dataclasses

import numpy as np
import pytest

from lookact.types import Decision, Episode, EpisodeSpec, Observation, Preference, Turn


def turn(reward: float, *, terminated: bool = False, truncated: bool = False) -> Turn:
    decision = Decision("go", np.zeros(2, np.float32), np.array([True, False]))
    return Turn(Observation("look"), decision, reward, terminated, truncated)


def test_an_episode_sums_its_rewards():
    assert Episode("e", 0, 1, (turn(0.25), turn(0.5), turn(-1.0))).total_reward == -0.25


def test_an_episode_ends_as_its_last_turn_does():
    assert Episode("e", 0, 1, (turn(0), turn(1, terminated=True))).terminated
    assert not Episode("e", 0, 1, (turn(0, truncated=True), turn(1))).truncated
    assert Episode("e", 0, 1, (turn(0), turn(1, truncated=True))).truncated


def test_an_episode_that_failed_at_once_is_a_record_too():
    episode = Episode("e", 0, 1, (), error="the engine died")
    assert (episode.terminated, episode.truncated, episode.total_reward) == (False, False, 0.0)


@pytest.mark.parametrize(
    "record", [Observation(), turn(0), turn(0).decision, EpisodeSpec("p", 0, 1), Preference(1, 2, 0)]
)
def test_records_cannot_be_changed(record):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, dataclasses.fields(record)[0].name, "other")


def test_default_mappings_are_not_shared():
    assert Observation().images is not Observation().images
    assert EpisodeSpec("a", 0, 0).options is not EpisodeSpec("b", 0, 0).options
