import numpy as np
import pytest

from lookact.algorithms.group_advantages import assign, episode_credit, turn_credit
from lookact.data.segments import cut
from lookact.types import Decision, Episode, Observation, Turn


def episode(group, *rewards, fresh=(0,)):
    turns = tuple(
        Turn(
            Observation(),
            Decision("", np.zeros(2, np.float32), np.ones(2, bool), np.arange(2), np.arange(3), fresh=i in fresh),
            reward,
            False,
            False,
        )
        for i, reward in enumerate(rewards)
    )
    return Episode(f"{group}", group, 0, turns)


def plain(credit):
    return [turns.tolist() for turns in credit]


def test_every_turn_of_an_episode_gets_its_return_against_the_others():
    episodes = [episode(0, 1.0, 2.0), episode(1, 4.0), episode(0, 1.0), episode(0, 0.0, 0.0, 5.0), episode(1, 2.0)]
    # group 0 earned 3, 1 and 5; group 1 earned 4 and 2
    assert plain(episode_credit(episodes)) == [[0.0, 0.0], [2.0], [-3.0], [3.0, 3.0, 3.0], [-2.0]]


def test_a_turn_is_compared_with_those_that_were_still_acting():
    episodes = [episode(0, 0.0, 1.0), episode(0, 1.0), episode(0, 0.0, 0.0, 4.0)]
    # to go, undiscounted: 1 1 | 1 | 4 4 4; the third turn was taken by one alone
    assert plain(turn_credit(episodes, gamma=1.0)) == [[-1.5, -3.0], [-1.5], [3.0, 3.0, 0.0]]


def test_later_rewards_count_less_by_turn():
    episodes = [episode(0, 0.0, 1.0), episode(0, 0.0, 0.0)]
    assert plain(turn_credit(episodes, gamma=0.5)) == [[0.5, 1.0], [-0.5, -1.0]]


def test_groups_are_kept_apart_by_turn_too():
    episodes = [episode(0, 1.0), episode(1, 10.0), episode(0, 0.0), episode(1, 20.0)]
    assert plain(turn_credit(episodes, gamma=1.0)) == [[1.0], [-10.0], [-1.0], [10.0]]


def test_no_episodes_no_credit():
    assert turn_credit([], gamma=1.0) == episode_credit([]) == []


def test_an_episode_alone_in_its_group_is_refused():
    with pytest.raises(ValueError, match="no baseline"):
        episode_credit([episode(0, 1.0)])


def test_credit_follows_its_turn_across_a_rebuilt_context():
    segments = cut(episode(0, 0.0, 0.0, 0.0, fresh=(0, 2)))
    first, second = assign(segments, np.array([1.0, 2.0, 3.0], np.float32))
    assert first.advantages.tolist() == [1.0, 1.0, 2.0, 2.0]
    assert second.advantages.tolist() == [3.0, 3.0]
