import pickle

import numpy as np
import pytest

pytest.importorskip("pygame", reason="needs lookact[grid]")

from lookact.errors import EnvError
from lookact.rollout.collect import collect
from lookact.tasks.grid import frozen_lake_task, minigrid_task
from lookact.tasks.gym_task import labelled
from lookact.tasks.settings import FrozenLakeConfig, MiniGridConfig

TASKS = {"frozen-lake": frozen_lake_task(FrozenLakeConfig()), "minigrid": minigrid_task(MiniGridConfig())}


@pytest.fixture(params=TASKS)
def task(request):
    return TASKS[request.param]


def test_it_pickles(task):
    again = pickle.loads(pickle.dumps(task))
    assert again.make_env().reset(seed=0, options={})[0].text == task.make_env().reset(seed=0, options={})[0].text


def test_demonstrations_arrive_and_random_actions_are_not_imitated(task):
    specs = task.specs(0, "demo", groups=20)
    clean = list(task.demonstrations(specs, noise=0.0))
    assert len(clean) == 20
    env = task.make_env()
    for spec, demo in zip(specs, clean):
        env.reset(seed=spec.seed, options=spec.options)
        for text in demo.replies:
            *_, info = env.step(text)
        assert info["success"]
        assert all(demo.imitate)
    noisy = list(task.demonstrations(specs, noise=0.3))
    share = np.mean([kept for demo in noisy for kept in demo.imitate])
    assert 0.5 < share < 0.9


def test_the_corpus_holds_every_action_and_what_is_said(task):
    texts = " ".join(task.corpus())
    assert all(word in texts for word in task.actions)
    assert "Turn 1 of" in texts


def test_random_play_is_far_from_the_expert(task):
    episodes = collect(task.specs(0, "test", groups=40), [task.make_env() for _ in range(4)], task.random_actor())
    report = task.report(episodes)
    assert report["success_rate"] < 0.5
    assert report["valid_action_rate"] == 1.0
    assert report["episodes"] == 40


def test_pretraining_images_name_what_each_patch_shows(task):
    images = list(task.pretraining_images(0, rooms=range(3), per_room=2))
    assert len(images) == 6
    for image in images:
        side = task.image_size // 16
        assert image.coverage.shape[:2] == (side, side)
        # a cell of 32 pixels is four patches, and the player stands in one cell
        assert image.coverage[..., -1].sum() in (0, 4)
    assert images[0].rgb.shape == (task.image_size, task.image_size, 3)


def test_cells_that_do_not_fit_the_patches_are_refused():
    with pytest.raises(EnvError, match="evenly"):
        labelled(np.zeros((96, 96, 3), dtype=np.uint8), np.zeros((4, 4, 1), dtype=np.float32))
