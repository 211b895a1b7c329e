import pickle
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("pygame", reason="needs lookact[grid]")

from lookact.envs.wrappers.gym_chat import GymChat
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


def test_no_layout_of_a_held_out_split_is_trained_on(task):
    def layouts(split, step):
        specs = task.specs(3, split, groups=60, group_size=2, step=step)
        assert all(a.options == b.options for a, b in zip(specs[::2], specs[1::2]))
        return {task.layout(spec.options["start_seed"] % 2**31) for spec in specs}

    trained = {layout for step in range(5) for layout in layouts("train", step) | layouts("demo", step)}
    held_out = layouts("test", 0) | layouts("validate", 0)
    assert not trained & held_out
    # whatever the run's seed
    assert not trained & {task.layout(s.options["start_seed"] % 2**31) for s in task.specs(4, "test", groups=60)}
    assert len(held_out) > 20


def test_pretraining_images_name_what_each_patch_shows(task):
    images = list(task.pretraining_images(0, rooms=range(3), per_room=2))
    assert len(images) == 6
    for image in images:
        side = task.image_size // 16
        assert image.coverage.shape[:2] == (side, side)
        # a cell of 16 pixels is a patch, and FrozenLake's player, the last class, stands in one
        assert image.coverage[..., -1].sum() in (0, 1)
    assert images[0].rgb.shape == (task.image_size, task.image_size, 3)


def test_the_labels_are_of_the_picture_they_come_with():
    # without holes nothing but the gift ends a walk, and the player covers it
    task = frozen_lake_task(FrozenLakeConfig(frozen=1.0, size=2))
    for image in task.pretraining_images(0, rooms=range(10), per_room=4):
        player = tuple(np.argwhere(image.coverage[..., 2])[0])
        cells = image.rgb.reshape(2, 16, 2, 16, 3).transpose(0, 2, 1, 3, 4)
        # the elf has the darkest pixels but for the letters S and G in the corners of their cells
        darkest = cells[:, :, 4:, 4:].min(axis=(2, 3, 4))
        assert darkest[player] <= darkest[1, 1]


def test_labels_may_come_with_the_info_and_frame_pairs_take_the_place_of_none():
    plain = frozen_lake_task(FrozenLakeConfig(labels=False))
    pairs = list(plain.pretraining_images(0, rooms=range(4), per_room=4))
    moved = [pair for pair in pairs if (pair.before != pair.after).any()]
    assert moved
    assert {pair.action for pair in pairs} <= {0, 1, 2, 3}
    (image,) = replace(plain, make_env=TellingEnv).pretraining_images(0, rooms=[0], per_room=1)
    # the upper half of the picture is of class 0, the lower left patch half of class 1
    assert image.coverage[..., 0].tolist() == [[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert image.coverage[3, 0].tolist() == [0.0, 0.5]


class TellingEnv(GymChat):
    """FrozenLake whose info holds a segmentation of the picture, a class each pixel."""

    def __init__(self):
        super().__init__(TASKS["frozen-lake"].make_env()._make, instruction="", actions={"left": 0}, image_size=64)

    def step(self, action):
        *rest, info = super().step("left")
        classes = np.zeros((64, 64, 2), dtype=np.float32)
        classes[:32, :, 0] = 1.0
        classes[56:, :16, 1] = 1.0
        return *rest, {**info, "labels": classes}


def test_cells_that_do_not_fit_the_patches_are_refused():
    with pytest.raises(EnvError, match="evenly"):
        labelled(np.zeros((96, 96, 3), dtype=np.uint8), np.zeros((4, 4, 1), dtype=np.float32))
