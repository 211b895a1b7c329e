import numpy as np
import pytest

from lookact.envs.rooms.motion import Move
from lookact.recipes.rloo.report import (
    action_values,
    evaluate_actor,
    measure,
    rollout_metrics,
    show_episodes,
)
from lookact.rollout.samplers.random_actor import RandomActor
from lookact.types import Decision, Episode, Observation, Turn

MOVE = '{"rotation_angle_degrees": 30, "forward_meters": 0.5}'


def turn(said=MOVE, *, reward=0.0, success=False, valid=True, method="brace_depth"):
    blank = np.zeros(4, np.float32)
    seen = Observation(text="Find the bed.", images={"head": np.full((8, 8, 3), 9, np.uint8)}, state=blank)
    info = {"success": success, "spl": 0.5 * success, "collisions": 2, "valid_action": valid}
    return Turn(seen, Decision(said, blank, blank == 0, mask_method=method), reward, success, False, info)


ARRIVED = Episode("a", 0, 0, (turn(reward=0.25), turn(reward=1.0, success=True)))
LOST = Episode("b", 0, 1, (turn("mumble", valid=False, method="failed"), turn()))
BROKEN = Episode("c", 1, 2, (), error="OSError: no such room")


def test_each_episode_counts_once_whatever_became_of_it():
    numbers = {name: values.tolist() for name, values in measure([ARRIVED, LOST, BROKEN]).items()}
    assert numbers == {
        "success": [1.0, 0.0, 0.0], "spl": [0.5, 0.0, 0.0], "collisions": [2.0, 2.0, 0.0], "turns": [2.0, 2.0, 0.0],
        "return": [1.25, 0.0, 0.0], "valid_action": [1.0, 0.5, 0.0], "error": [0.0, 0.0, 1.0],
        "tokens": [8.0, 8.0, 0.0],
    }  # fmt: skip


def test_rollout_metrics_are_means_and_masking_shares():
    metrics = rollout_metrics([ARRIVED, LOST, BROKEN, ARRIVED])
    assert metrics["rollout/success_rate"] == 0.5
    assert metrics["rollout/return"] == 0.625
    assert metrics["rollout/error_rate"] == 0.25
    assert metrics["rollout/mask_failed"] == pytest.approx(1 / 6)
    assert metrics["rollout/mask_brace_depth"] == pytest.approx(5 / 6)
    assert metrics["rollout/dropout_rate"] == 0.5


def test_actions_that_cannot_be_read_are_in_no_histogram():
    values = action_values([ARRIVED, LOST, BROKEN])
    assert values["rotation_angle_degrees"].tolist() == [30.0] * 3
    assert values["forward_meters"].tolist() == [0.5] * 3


class Board:
    def __init__(self):
        self.seen = []

    def image(self, name, image, step):
        self.seen.append((name, image.shape, step))

    def text(self, name, text, step):
        self.seen.append((name, text, step))

    def histogram(self, name, values, step):
        self.seen.append((name, len(values), step))


def test_episodes_are_shown_as_strips_and_words_and_broken_ones_are_passed_over():
    board = Board()
    show_episodes(board, [BROKEN, ARRIVED], 4)
    assert ("rollout/views_0", (8, 16, 3), 4) in board.seen
    assert ("rollout/words_0", f"Find the bed.\n    {MOVE}\nFind the bed.\n    {MOVE}\nreturn 1.25", 4) in board.seen
    assert ("rollout/forward_meters", 2, 4) in board.seen
    board = Board()
    show_episodes(board, [BROKEN], 4)
    assert board.seen == []


def test_an_evaluation_has_a_mean_and_an_interval_of_everything(nav_config):
    actor = RandomActor(lambda rng: Move(float(rng.integers(-90, 90)), 1.0).json())
    report, ended = evaluate_actor(actor, nav_config.world, seed=0, split="test", episodes=12, rows=5)
    plain = report.plain()
    assert plain["episodes"] == len(ended) == 12
    names = {"success_rate", "spl", "turns", "valid_action_rate", "collisions"}
    assert set(plain["ci"]) == names == set(report.values)
    for name in names:
        low, high = plain["ci"][name]
        assert low <= plain[name] <= high
    assert plain["valid_action_rate"] == 1.0
    assert report.metrics("eval").keys() == {f"eval/{name}" for name in names}


def test_an_evaluation_does_not_depend_on_how_many_walk_side_by_side(nav_config):
    actor = RandomActor(lambda rng: Move(float(rng.integers(-90, 90)), 1.0).json())
    reports = [
        evaluate_actor(actor, nav_config.world, seed=0, split="test", episodes=6, rows=rows)[0] for rows in (1, 6)
    ]
    assert reports[0] == reports[1]
