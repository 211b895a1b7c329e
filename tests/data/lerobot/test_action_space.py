import json
from dataclasses import replace

import numpy as np
import pytest

from lookact.data.lerobot.action_space import (
    ACTION_SPACE,
    ActionSpace,
    action_bounds,
    check_action_space,
    read_action_space,
    write_action_space,
)
from lookact.errors import DataError

ARM = ActionSpace("ee_delta", "none", "open_positive", 10)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "meta").mkdir()
    info = {"codebase_version": "v3.0", "fps": 10, "features": {}, "data_path": "x"}
    (tmp_path / "meta/info.json").write_text(json.dumps(info))
    stats = {"min": [-2, 0, 7], "max": [4, 1, 7], "q01": [-1, 0.1, 7], "q99": [3, 0.9, 7], "count": [5]}
    (tmp_path / "meta/stats.json").write_text(json.dumps({"action": stats}))
    return tmp_path


def test_what_was_written_is_read(folder):
    assert read_action_space(folder) is None
    # a dataset that does not tell is taken at its size
    check_action_space(folder, ARM)
    write_action_space(folder, ARM)
    assert read_action_space(folder) == ARM
    check_action_space(folder, ARM)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"control": "ee_absolute"}, "control ee_absolute, the environment's ee_delta"),
        ({"rotation": "euler"}, "rotation euler, the environment's none"),
        ({"gripper": "close_positive"}, "gripper close_positive, the environment's open_positive"),
        ({"rate": 20}, "rate 20, the environment's 10"),
    ],
)
def test_each_convention_is_refused_where_it_differs(folder, change, told):
    write_action_space(folder, replace(ARM, **change))
    with pytest.raises(DataError, match=told):
        check_action_space(folder, ARM)


def test_another_rate_is_refused_by_the_datasets_own_word(folder):
    with pytest.raises(DataError, match=r"recorded at 10 steps a second .* takes 20: resample"):
        check_action_space(folder, replace(ARM, rate=20))


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"control": "ee_delta"}', json.dumps(vars(ARM) | {"more": 1}), "[" * 5000]
)
def test_a_record_that_is_none_is_one_line(folder, text):
    (folder / ACTION_SPACE).write_text(text)
    with pytest.raises(DataError, match="is no JSON object of control, rotation, gripper, rate") as error:
        read_action_space(folder)
    assert "\n" not in str(error.value)


def test_a_convention_that_nobody_knows_is_told(folder):
    write_action_space(folder, replace(ARM, rotation="roll"))
    with pytest.raises(DataError, match="rotation is roll: choose one of none, yaw, axis_angle"):
        read_action_space(folder)


def test_bounds_come_from_the_statistics(folder):
    assert action_bounds(folder, "recorded") is None
    low, high = action_bounds(folder, "minmax")
    # a number that never changes lies in the middle
    assert (low.tolist(), high.tolist()) == ([-2, 0, 6], [4, 1, 8])
    low, high = action_bounds(folder, "quantile")
    assert np.allclose([low, high], [[-1, 0.1, 6], [3, 0.9, 8]])
    (folder / "meta/stats.json").write_text(json.dumps({"action": {"min": [0], "max": [1]}}))
    with pytest.raises(DataError, match="has no q01 of action"):
        action_bounds(folder, "quantile")
