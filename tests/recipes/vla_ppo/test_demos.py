"""Demonstrations through real worker processes, to disk and back."""

import itertools
import json
import shutil

import numpy as np
import pytest

from lookact.data.lerobot.read import INFO
from lookact.errors import DataError, EnvError
from lookact.recipes.vla_ppo import task as vla_task
from lookact.recipes.vla_ppo.config import EnvConfig
from lookact.recipes.vla_ppo.task import open_demos, pretraining_images, record_demos, write_demos

SMALL = EnvConfig(task="reach", image_size=16, cameras=("head",), max_steps=20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("demos") / "set"
    assert write_demos(path, SMALL, seed=0, count=5, noise=0.1, workers=2) == 5
    return path


@pytest.mark.slow
def test_what_was_recorded_comes_back(folder):
    written, read = list(record_demos(SMALL, seed=0, count=5, noise=0.1, workers=1)), list(open_demos(folder, SMALL))
    assert len(read) == 5
    for before, after in zip(written, read):
        # whoever recorded it, and however many did
        assert after.task == before.task
        assert np.array_equal(after.states, before.states)
        assert np.array_equal(after.actions, before.actions)
        assert np.abs(after.images["head"].astype(int) - before.images["head"]).mean() < 8
    assert not np.array_equal(read[0].states[0], read[1].states[0])


@pytest.mark.slow
def test_episodes_that_the_expert_does_not_solve_are_left_out():
    hurried = EnvConfig(task="reach", cameras=("head",), image_size=16, max_steps=5)
    demos = list(record_demos(hurried, seed=0, count=2, noise=0.0, workers=1))
    assert [len(demo) <= 5 for demo in demos] == [True, True]
    hopeless = EnvConfig(task="pick_place", cameras=("head",), image_size=16, max_steps=3)
    with pytest.raises(EnvError, match=r"the expert solved 0 of \d+ episodes"):
        list(record_demos(hopeless, seed=0, count=1, noise=0.0, workers=1))


@pytest.mark.parametrize(
    ("world", "told"),
    [
        (EnvConfig(task="reach", cameras=("head", "wrist")), "no video of wrist"),
        (EnvConfig(task="reach", cameras=("head",), control="delta_qpos"), r"action has shape \[4\], \[8\] is wanted"),
    ],
)
def test_a_set_with_other_features_is_refused(folder, world, told):
    with pytest.raises(DataError, match=told) as error:
        list(open_demos(folder, world))
    assert "\n" not in str(error.value)


def test_a_foreign_set_with_more_than_is_needed_is_read(folder, tmp_path):
    foreign = tmp_path / "foreign"
    shutil.copytree(folder, foreign)
    info = json.loads((foreign / INFO).read_text())
    info["robot_type"] = "another"
    info["features"]["observation.force"] = {"dtype": "float32", "shape": [6], "names": None}
    (foreign / INFO).write_text(json.dumps(info))
    assert len(list(open_demos(foreign, SMALL))) == 5


@pytest.mark.parametrize("kind", ["*.mp4", "data/**/*.parquet"])
def test_a_torn_file_is_one_line(folder, tmp_path, kind):
    torn = tmp_path / "torn"
    shutil.copytree(folder, torn)
    victim = next(torn.rglob(kind) if kind == "*.mp4" else torn.glob(kind))
    victim.write_bytes(victim.read_bytes()[:200])
    with pytest.raises(DataError, match=victim.name) as error:
        list(open_demos(torn, SMALL))
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_set_is_there_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    def broken(*args, **kwargs):
        yield from itertools.islice(record_demos(SMALL, seed=0, count=1, noise=0.1, workers=1), 1)
        raise KeyboardInterrupt

    monkeypatch.setattr(vla_task, "record_demos", broken)
    with pytest.raises(KeyboardInterrupt):
        write_demos(tmp_path / "set", SMALL, seed=0, count=2, noise=0.1, workers=1)
    assert not (tmp_path / "set").exists()


@pytest.mark.slow
def test_pretraining_images_do_not_depend_on_who_draws_them():
    one, two = (pretraining_images(SMALL, seed=0, count=9, workers=workers) for workers in (1, 2))
    assert len(one) == 9
    for a, b in zip(one, two):
        assert np.array_equal(a.images["head"], b.images["head"])
        assert np.array_equal(a.positions, b.positions)
