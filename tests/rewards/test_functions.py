import math
from dataclasses import replace

import numpy as np
import pytest

from lookact.errors import ConfigError
from lookact.rewards.functions import checked, invalid_action, load_rewards, trl_reward
from lookact.types import Decision, Episode, Observation, Turn

OWN = """
def brevity(episode):
    return -float(len(episode.turns))

def each_turn(episode):
    return [0.25 for _ in episode.turns]

NUMBER = 3
"""


def episode(*rewards):
    nothing = np.zeros(0, np.float32)
    turns = [Turn(Observation("go"), Decision("yes", nothing, nothing.astype(bool)), r, False, False) for r in rewards]
    return Episode("e", 0, 0, tuple(turns))


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "my_rewards.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)


def test_without_functions_the_environments_reward_stays_to_the_last_bit():
    (relabelled,) = load_rewards(()).relabel([episode(0.1, 0.2)])
    assert [turn.reward for turn in relabelled.turns] == [0.1, 0.2]


def test_functions_are_added_with_their_weights_and_kept_apart(own):
    (relabelled,) = load_rewards(["my_rewards:brevity*0.5", "my_rewards:each_turn"]).relabel([episode(1.0, 2.0)])
    # one number is paid in the last turn: 2 turns cost -2, by half
    assert [turn.reward for turn in relabelled.turns] == [1.0 + 0.25, 2.0 - 1.0 + 0.25]
    assert relabelled.turns[1].info["reward_parts"] == {"env": 2.0, "brevity": -1.0, "each_turn": 0.25}


@pytest.mark.parametrize(
    ("paths", "line"),
    [
        (["my_rewards:missing"], "has no missing"),
        (["my_rewards:brevity*much"], "'much' is no number"),
        (["my_rewards:NUMBER"], "is no function: it is a int"),
        (["my_rewards:brevity", "my_rewards:brevity*2"], "brevity is named twice"),
        (["nowhere:brevity"], "there is no module nowhere"),
    ],
)
def test_a_bad_path_is_one_line(own, paths, line):
    with pytest.raises(ConfigError, match=line):
        load_rewards(paths)


@pytest.mark.parametrize(
    ("paid", "line"), [(math.nan, "not finite"), ([1.0], "1 rewards for 2 turns"), ([0.0, math.inf], "not finite")]
)
def test_what_is_no_reward_is_one_line(paid, line):
    with pytest.raises(ConfigError, match=line):
        checked(lambda _: paid, "mine")(episode(0.0, 0.0))


def test_a_reward_function_of_trl_is_asked_about_the_last_reply():
    def length(prompts, completions, **kwargs):
        return [float(len(prompts[0]) + len(text)) for text in completions]

    assert checked(trl_reward(length), "length")(episode(0.0, 0.0)) == [0.0, 5.0]
    assert trl_reward(length)(episode()) == 0.0


def test_an_action_that_could_not_be_read_costs_one():
    whole = episode(0.0, 0.0, 1.0)
    told = [{"valid_action": True}, {"valid_action": False}, {}]
    turns = tuple(replace(turn, info=info) for turn, info in zip(whole.turns, told))
    assert invalid_action(replace(whole, turns=turns)) == [0.0, -1.0, 0.0]
