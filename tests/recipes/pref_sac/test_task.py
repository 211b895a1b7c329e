import numpy as np
import pytest

from lookact.errors import ConfigError
from lookact.recipes.pref_sac.config import World
from lookact.recipes.pref_sac.task import goal_in_words, horizon_of, make_env, make_gallery, progress_of

SHORT = World(horizon=20, image_size=32)


def test_a_gallery_shows_every_quality_and_comes_again_from_its_seed():
    gallery = make_gallery(SHORT, 45, seed=0)
    assert gallery.images.shape == (45, 32, 32, 3)
    assert gallery.images.dtype == np.uint8
    assert gallery.states.shape == (45, 3)
    assert len(np.unique(gallery.scores)) > 40
    again, other = make_gallery(SHORT, 45, seed=0), make_gallery(SHORT, 45, seed=1)
    assert np.array_equal(again.images, gallery.images)
    assert not np.array_equal(other.scores, gallery.scores)


def test_parts_keep_pictures_and_numbers_together():
    gallery = make_gallery(SHORT, 12, seed=0)
    part = gallery.part(4, 9)
    assert len(part) == 5
    assert np.array_equal(part.images, gallery.images[4:9])
    assert np.array_equal(part.scores, gallery.scores[4:9])


def test_progress_is_what_a_picture_can_show():
    upright, fast = np.array([1.0, 0.0, 0.0], np.float32), np.array([1.0, 0.0, 8.0], np.float32)
    assert progress_of(SHORT, upright, -0.1) == progress_of(SHORT, fast, -6.4) == 0.0
    assert progress_of(SHORT, np.array([-1.0, 0.0, 0.0], np.float32), 0.0) == pytest.approx(-(np.pi**2))
    assert [progress_of(World(task="drawer-open-v3"), upright, reward) for reward in (4.0, 0.0)] == [2.0, 0.0]


def test_the_goal_is_known_or_told():
    assert goal_in_words(World(task="window-close-v3")) == "to slide the window shut"
    assert goal_in_words(World(task="window-close-v3", goal="to wave")) == "to wave"
    with pytest.raises(ConfigError, match="give one in words"):
        goal_in_words(World(task="Unheard-v0"))


def test_the_camera_and_crop_are_those_asked_for():
    env = make_env(World(task="window-close-v3", horizon=5, image_size=64, crop=(0.25, 0.0, 1.0, 1.0)))
    env.reset(seed=0)
    assert env.render().shape == (48, 64, 3)
    assert horizon_of(env) == 5
    env.close()
