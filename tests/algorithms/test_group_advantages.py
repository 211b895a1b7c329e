from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from lookact.algorithms.group_advantages import (
    BASELINES,
    anchor_advantages,
    assign,
    count_groups,
    drop_zero_variance_groups,
    episode_advantages,
    pack,
    scale_advantages,
    turn_advantages,
)
from lookact.data.packing import to_segments
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
    assert plain(episode_advantages(episodes)) == [[0.0, 0.0], [2.0], [-3.0], [3.0, 3.0, 3.0], [-2.0]]


def test_a_turn_is_compared_with_those_that_were_still_acting():
    episodes = [episode(0, 0.0, 1.0), episode(0, 1.0), episode(0, 0.0, 0.0, 4.0)]
    # to go, undiscounted: 1 1 | 1 | 4 4 4; the third turn was taken by one alone
    assert plain(turn_advantages(episodes, gamma=1.0)) == [[-1.5, -3.0], [-1.5], [3.0, 3.0, 0.0]]


def test_later_rewards_count_less_by_turn():
    episodes = [episode(0, 0.0, 1.0), episode(0, 0.0, 0.0)]
    assert plain(turn_advantages(episodes, gamma=0.5)) == [[0.5, 1.0], [-0.5, -1.0]]


def test_groups_are_kept_apart_by_turn_too():
    episodes = [episode(0, 1.0), episode(1, 10.0), episode(0, 0.0), episode(1, 20.0)]
    assert plain(turn_advantages(episodes, gamma=1.0)) == [[1.0], [-10.0], [-1.0], [10.0]]


def test_no_episodes_no_credit():
    assert turn_advantages([], gamma=1.0) == episode_advantages([]) == []


def test_an_episode_alone_in_its_group_is_refused():
    with pytest.raises(ValueError, match="no baseline"):
        episode_advantages([episode(0, 1.0)])


def test_credit_follows_its_turn_across_a_rebuilt_context():
    segments = to_segments(episode(0, 0.0, 0.0, 0.0, fresh=(0, 2)))
    first, second = assign(segments, np.array([1.0, 2.0, 3.0], np.float32))
    assert first.advantages.tolist() == [1.0, 1.0, 2.0, 2.0]
    assert second.advantages.tolist() == [3.0, 3.0]


def failed(group, *rewards):
    return replace(episode(group, *rewards), error="OSError: no such room")


def test_groups_of_equal_returns_are_counted_and_left_out():
    episodes = [episode(0, 1.0), episode(0, 1.0), episode(1, 4.0), episode(1, 2.0)]
    assert drop_zero_variance_groups(episodes) == (episodes[2:], 0.5)
    assert drop_zero_variance_groups(episodes[2:]) == (episodes[2:], 0.0)


def test_failed_episodes_are_left_out_and_one_survivor_has_no_baseline():
    episodes = [failed(0, 9.0), episode(0, 1.0), episode(1, 4.0), episode(1, 2.0)]
    assert drop_zero_variance_groups(episodes) == (episodes[2:], 0.5)


def test_a_group_is_judged_by_what_is_credited():
    # equal returns at other times; equal rewards until one goes on alone; nothing differs; the return alone
    late, alone, flat, sooner = (
        [episode(0, 1.0, 0.0), episode(0, 0.0, 1.0)],
        [episode(1, 0.0), episode(1, 0.0, 0.0)],
        [episode(2, 1.0), episode(2, 1.0)],
        [episode(3, 0.0, 1.0), episode(3, 0.0, 2.0)],
    )
    episodes = [*late, *alone, *flat, *sooner]
    assert drop_zero_variance_groups(episodes) == (sooner, 0.75)
    # undiscounted, both were to earn 1 at first; in the second turn one was still to earn it
    assert drop_zero_variance_groups(episodes, credit="turn") == ([*late, *sooner], 0.5)
    assert drop_zero_variance_groups(late, credit="turn", gamma=0.5) == (late, 0.0)
    assert drop_zero_variance_groups([*alone, *flat], credit="turn") == ([], 1.0)
    assert drop_zero_variance_groups([replace(one, turns=()) for one in flat], credit="turn") == ([], 1.0)


def test_what_is_kept_has_an_advantage_somewhere_and_what_is_dropped_nowhere():
    seen = [Observation(state=np.array([value], np.float32)) for value in (0, 1)]

    def walk(group, *steps):
        turns = episode(group, *(reward for _, reward in steps)).turns
        return Episode("", group, 0, tuple(replace(t, observation=seen[s]) for t, (s, _) in zip(turns, steps)))

    # the same return; in state 1 one is still to earn 1 and the other nothing
    apart = [walk(0, (0, 0.0), (1, 1.0)), walk(0, (0, 1.0), (1, 0.0))]
    same = [walk(1, (0, 0.0), (1, 1.0)), walk(1, (0, 0.0), (1, 1.0))]
    assert drop_zero_variance_groups([*apart, *same], credit="anchor") == (apart, 0.5)
    assert any(turns.any() for turns in anchor_advantages(apart, gamma=1.0))
    assert not any(turns.any() for turns in anchor_advantages(same, gamma=1.0))


def test_groups_are_counted_once():
    assert count_groups([episode(0), episode(3), episode(0)]) == 2
    assert count_groups([]) == 0


@pytest.mark.parametrize("advantages_of", [episode_advantages, partial(turn_advantages, gamma=1.0)])
@pytest.mark.parametrize("episodes", [[], [episode(0, 1.0), episode(0, 1.0)], [failed(0, 1.0)]])
def test_where_nothing_can_be_learned_there_is_nothing_to_pack(episodes, advantages_of):
    kept, dropped = drop_zero_variance_groups(episodes)
    assert dropped == 1.0
    assert pack(kept, scale_advantages(advantages_of(kept)), loss_on="action") == []


def test_scaling_makes_the_mean_square_one_and_keeps_ratios():
    episodes = [episode(0, 3.0), episode(0, 0.0), episode(1, 1.0), episode(1, 0.0)]
    values = np.concatenate(scale_advantages(episode_advantages(episodes)))
    assert np.mean(values**2) == pytest.approx(1.0)
    assert values[0] / values[2] == pytest.approx(3.0)


def test_packing_puts_a_turns_advantage_on_its_counted_tokens_or_on_all():
    said = Decision("", np.zeros(3, np.float32), np.array([0, 1, 1], bool), np.arange(3), np.arange(4))
    one = Episode("e", 0, 0, (Turn(Observation(), said, 1.0, True, False),) * 2)
    for loss_on, mask in (("action", [False, True, True]), ("reply", [True] * 3)):
        (segment,) = pack([one], [np.array([1.0, -2.0], np.float32)], loss_on=loss_on)
        assert segment.mask.tolist() == mask * 2
        assert segment.advantages.tolist() == [1.0] * 3 + [-2.0] * 3


def in_states(group, *steps):
    """An episode whose turns show a state and earn a reward."""
    made = episode(group, *(reward for _, reward in steps))
    shown = [Observation(text=str(i), state=np.array([state], np.float32)) for i, (state, _) in enumerate(steps)]
    return replace(made, turns=tuple(replace(turn, observation=o) for turn, o in zip(made.turns, shown)))


def test_anchor_states_compare_turns_that_saw_the_same_whenever_they_did():
    episodes = [in_states(0, (7, 0.0), (8, 4.0)), in_states(0, (9, 0.0), (7, 0.0))]
    # returns 4 and 0: plus and minus 4. To go: 4 4 | 0 0; state 7 was seen by both, first in turn 1, then in turn 2
    assert plain(anchor_advantages(episodes, gamma=1.0)) == [[4.0 + 4.0, 4.0], [-4.0, -4.0 - 4.0]]
    # states of another group are not the same state
    apart = [in_states(0, (7, 1.0)), in_states(1, (7, 5.0)), in_states(0, (1, 0.0)), in_states(1, (2, 0.0))]
    assert plain(anchor_advantages(apart, gamma=1.0)) == [[1.0], [5.0], [-1.0], [-5.0]]


@pytest.mark.parametrize(
    ("name", "expected"), [("group_mean", 1.0), ("leave_one_out", 2.0), ("group_normalised", 0.5**0.5)]
)
def test_baselines_by_name(name, expected):
    episodes = [episode(0, 3.0), episode(0, 1.0)]
    (first,), (second,) = episode_advantages(episodes, BASELINES[name])
    assert (first, second) == (pytest.approx(expected, abs=1e-5), pytest.approx(-expected, abs=1e-5))
    assert plain(turn_advantages(episodes, gamma=1.0, baseline=BASELINES[name])) == [[first], [second]]
