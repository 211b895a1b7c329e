from dataclasses import replace

import pytest

from chat_episodes import ARRIVED, LOST, OUTCOME
from chat_episodes import BROKEN as NEVER_BEGUN
from lookact.algorithms.rollouts import reward_metrics, rollout_metrics, stop_on_errors
from lookact.errors import TrainingStopped
from lookact.rewards.functions import WeightedParts
from lookact.types import Episode

WHOLE = Episode("a", 0, 1, ())
BROKEN = Episode("b", 0, 2, (), error="OSError: no such room")


def test_a_share_of_failures_that_is_allowed_stops_nothing():
    stop_on_errors([WHOLE, BROKEN], 0.5, 0.5)


@pytest.mark.parametrize(
    ("episodes", "reason"), [([BROKEN, WHOLE], "OSError: no such room"), ([WHOLE], "an error in another process")]
)
def test_more_failures_stop_the_run_and_the_last_is_named(episodes, reason):
    with pytest.raises(TrainingStopped, match=f"^50% of the episodes failed, the last with: {reason}$"):
        stop_on_errors(episodes, 0.5, 0.2)


def test_rollout_metrics_are_means_and_masking_shares():
    stale = replace(ARRIVED, policy_version=4)
    metrics = rollout_metrics([ARRIVED, LOST, NEVER_BEGUN, stale], OUTCOME, 6)
    assert metrics["rollout/success_rate"] == 0.5
    assert metrics["rollout/return"] == 0.625
    assert metrics["rollout/error_rate"] == 0.25
    assert metrics["rollout/mask_failed"] == pytest.approx(1 / 6)
    assert metrics["rollout/mask_brace_depth"] == pytest.approx(5 / 6)
    assert metrics["rollout/dropout_rate"] == 0.5
    # the oldest weights, of version 0, are five updates behind those that step 6 begins with
    assert metrics["rollout/staleness"] == 5
    # nothing was relabelled: the environment paid it all
    assert metrics["reward/env"] == 0.625


def test_what_each_part_of_the_reward_paid_an_episode():
    parts = WeightedParts(
        {"one": (2.0, lambda e: [1.0] * len(e.turns)), "two": (0.5, lambda e: list(range(len(e.turns))))}
    )
    # four turns at 2 and, in two episodes of two turns, half of 0 + 1; over three episodes
    metrics = reward_metrics(parts.relabel([ARRIVED, LOST, NEVER_BEGUN]))
    assert metrics == {"reward/one": pytest.approx(8 / 3), "reward/two": pytest.approx(1 / 3)}
