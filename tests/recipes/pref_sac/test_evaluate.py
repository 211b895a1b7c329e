import pytest

from lookact.envs.control.fixed_horizon import horizon_of
from lookact.errors import ConfigError
from lookact.recipes.pref_sac.config import LABELS, PRESETS, EnvConfig, label_file
from lookact.recipes.pref_sac.evaluate import goal_in_words, make_env


def test_the_goal_is_known_or_told():
    assert goal_in_words(EnvConfig(task="window-close-v3")) == "to slide the window shut"
    assert goal_in_words(EnvConfig(task="window-close-v3", goal="to wave")) == "to wave"
    with pytest.raises(ConfigError, match="give one in words"):
        goal_in_words(EnvConfig(task="Unheard-v0"))


def test_the_camera_and_crop_are_those_asked_for():
    env = make_env(EnvConfig(task="window-close-v3", horizon=5, image_size=64, crop=(0.25, 0.0, 1.0, 1.0)))
    env.reset(seed=0)
    assert env.render().shape == (48, 64, 3)
    assert horizon_of(env) == 5
    env.close()


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_asks_about_all_of_its_pairs(preset):
    cfg = PRESETS[preset]
    episodes = cfg.learn.episodes - cfg.learn.random_episodes - cfg.learn.unsupervised_episodes
    rounds = 1 + episodes // cfg.feedback.every
    assert rounds * cfg.feedback.pairs_per_round >= cfg.feedback.total


@pytest.mark.parametrize("nothing", [None, "", "None", "null"])
def test_there_are_many_ways_to_say_no_path(nothing):
    assert label_file(nothing) is None


def test_labels_are_found_by_their_file_or_its_run(tmp_path):
    assert label_file(str(tmp_path)) == label_file(str(tmp_path / LABELS)) == tmp_path / LABELS
