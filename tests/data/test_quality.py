import numpy as np
import pytest

from chat_episodes import ARRIVED, BROKEN, LOST, OUTCOME
from lookact.data.quality import episode_numbers, judge_quality, summarise
from lookact.types import Decision, Episode, Observation, Turn

MOVE = '{"rotation_angle_degrees": 1, "forward_meters": 2}'


def turn(method, action=MOVE):
    decision = Decision(action=action, logprobs=np.zeros(1, np.float32), mask=np.ones(1, bool), mask_method=method)
    return Turn(Observation(), decision, reward=0.0, terminated=False, truncated=False)


def episode(*turns, error=None):
    return Episode(id="e", group=0, seed=0, turns=turns, error=error)


@pytest.mark.parametrize(
    ("methods", "quality"),
    [
        (["brace_depth", "brace_depth"], "good"),
        (["brace_depth", "regex"], "low_confidence"),
        (["regex", "last_n", "brace_depth"], "fallback_used"),
        (["brace_depth", "failed"], "fallback_used"),
    ],
)
def test_quality_is_that_of_the_worst_turn(methods, quality):
    assert judge_quality(episode(*map(turn, methods))).quality == quality


@pytest.mark.parametrize(
    ("judged", "reason"),
    [
        (episode(turn("brace_depth"), turn("last_n")), None),
        (episode(turn("brace_depth", '{"answer": "B"}')), None),
        (episode(turn("failed", "I give up")), "no action found"),
        (episode(turn("brace_depth", "{go: left}")), "invalid JSON"),
        (episode(turn("regex", '{"forward_meters": 1')), "invalid JSON"),
        (episode(turn("brace_depth", '{"forward_meters": 1}')), "invalid action"),
        (episode(turn("brace_depth"), error="renderer died"), "environment error"),
        (episode(error="renderer died"), "environment error"),
        (episode(), "no turns"),
    ],
)
def test_dropout_reason(judged, reason):
    quality = judge_quality(judged)
    assert quality.dropout_reason == reason
    assert quality.is_valid == (reason is None)


def test_first_cause_wins():
    bad = episode(turn("brace_depth", "{}"), turn("failed", "?"), error="renderer died")
    assert judge_quality(bad).dropout_reason == "invalid action"


def test_action_vectors_are_always_good():
    quality = judge_quality(episode(turn("", np.zeros(3, np.float32))))
    assert (quality.quality, quality.is_valid) == ("good", True)


def test_summary_counts_turns_episodes_and_reasons():
    summary = summarise(
        [
            episode(turn("brace_depth"), turn("brace_depth")),
            episode(turn("brace_depth"), turn("regex", '{"forward_meters"')),
            episode(turn("failed", "")),
            episode(turn("last_n")),
        ]
    )
    assert summary.episodes == 4
    assert summary.methods == {"brace_depth": 3, "regex": 1, "last_n": 1, "failed": 1}
    assert summary.qualities == {"good": 1, "low_confidence": 1, "fallback_used": 2}
    assert summary.dropout_rate == 0.5
    assert summary.reasons == {"invalid JSON": 1, "no action found": 1}


def test_summary_of_nothing():
    summary = summarise([])
    assert (summary.episodes, summary.dropout_rate, summary.reasons) == (0, 0.0, {})


def test_each_episode_counts_once_whatever_became_of_it() -> None:
    numbers = {name: values.tolist() for name, values in episode_numbers([ARRIVED, LOST, BROKEN], OUTCOME).items()}
    assert numbers == {
        "success_rate": [1.0, 0.0, 0.0], "spl": [0.5, 0.0, 0.0], "turns": [2.0, 2.0, 0.0], "return": [1.25, 0.0, 0.0],
        "valid_action_rate": [1.0, 0.5, 0.0], "error_rate": [0.0, 0.0, 1.0], "tokens": [8.0, 8.0, 0.0],
    }  # fmt: skip
