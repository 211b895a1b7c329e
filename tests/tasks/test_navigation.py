import numpy as np

from lookact.rollout.episode_specs import make_specs
from lookact.tasks.navigation import make_corpus, make_demos, make_env


def test_a_group_shares_its_start_and_nothing_else():
    plans = make_specs(3, "train", groups=3, size=2, step=5)
    assert [plan.group for plan in plans] == [0, 0, 1, 1, 2, 2]
    assert plans[0].options == plans[1].options != plans[2].options
    assert len({plan.seed for plan in plans}) == len({plan.id for plan in plans}) == 6


def test_plans_depend_on_their_names_and_not_on_how_many_there_are():
    assert make_specs(3, "train", groups=2, step=5) == make_specs(3, "train", groups=4, step=5)[:2]


def test_splits_steps_and_seeds_share_no_room():
    rooms = [
        plan.options["scene_seed"]
        for seed in (0, 1)
        for split, step in (("train", 1), ("train", 2), ("validate", 0), ("test", 0), ("demo", 0), ("collect", 0))
        for plan in make_specs(seed, split, groups=50, step=step)
    ]
    assert len(set(rooms)) == len(rooms)


def test_equal_plans_start_alike_in_any_environment(nav_config):
    (plan,) = make_specs(0, "test", groups=1)
    first, second = (make_env(nav_config.world).reset(seed=plan.seed, options=plan.options)[0] for _ in range(2))
    assert first.text == second.text
    assert np.array_equal(first.images["head"], second.images["head"])
    assert first.images["head"].shape == (64, 64, 3)


def test_demonstrations_mark_the_moves_that_noise_put_in(nav_config):
    plans = make_specs(0, "demo", groups=12)
    clean, noisy = (list(make_demos(nav_config.world, plans, noise=noise)) for noise in (0.0, 0.6))
    assert all(all(demo.imitate) for demo in clean)
    marked = [stood_by for demo in noisy for stood_by in demo.imitate]
    assert 0.2 < np.mean(marked) < 0.8
    assert all(len(demo.observations) == len(demo.replies) == len(demo.imitate) for demo in noisy)
    assert all(observation.depth is None for demo in clean for observation in demo.observations)


def test_the_corpus_holds_what_is_asked_and_said(nav_config):
    corpus = make_corpus(nav_config.world)
    assert "Find the sofa. Turn 1 of 3." in corpus
    assert "Blocked. Turn 2 of 3." in corpus
    assert sum('{"rotation_angle_degrees": ' in text for text in corpus) >= 40
