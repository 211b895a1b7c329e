from dataclasses import replace

import numpy as np

from lookact.algorithms.evaluation import run_specs
from lookact.rollout.collect import make_specs
from lookact.tasks.navigation import NavigationTask
from lookact.types import Decision, Episode, Observation, Turn

MOVE = '{"rotation_angle_degrees": 30, "forward_meters": 0.5}'


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
    first, second = (
        NavigationTask(nav_config.env).make_env().reset(seed=plan.seed, options=plan.options)[0] for _ in range(2)
    )
    assert first.text == second.text
    assert np.array_equal(first.images["head"], second.images["head"])
    assert first.images["head"].shape == (64, 64, 3)


def test_a_blind_task_says_the_same_and_shows_nothing(nav_config):
    (plan,) = make_specs(0, "test", groups=1)
    sighted, blind = (
        NavigationTask(replace(nav_config.env, blind=blind)).make_env().reset(seed=plan.seed, options=plan.options)[0]
        for blind in (False, True)
    )
    assert sighted.text == blind.text
    assert sighted.images["head"].any()
    assert not blind.images["head"].any()


def test_demonstrations_mark_the_moves_that_noise_put_in(nav_config):
    plans = make_specs(0, "demo", groups=12)
    clean, noisy = (list(NavigationTask(nav_config.env).demonstrations(plans, noise=noise)) for noise in (0.0, 0.6))
    assert all(all(demo.imitate) for demo in clean)
    marked = [stood_by for demo in noisy for stood_by in demo.imitate]
    assert 0.2 < np.mean(marked) < 0.8
    assert all(len(demo.observations) == len(demo.replies) == len(demo.imitate) for demo in noisy)
    assert all(observation.depth is None for demo in clean for observation in demo.observations)


def test_the_corpus_holds_what_is_asked_and_said(nav_config):
    corpus = NavigationTask(nav_config.env).corpus()
    assert "Find the sofa. Turn 1 of 3." in corpus
    assert "Blocked. Turn 2 of 3." in corpus
    assert sum('{"rotation_angle_degrees": ' in text for text in corpus) >= 40


def turn(said=MOVE, *, reward=0.0, success=False, valid=True, method="brace_depth"):
    blank = np.zeros(4, np.float32)
    seen = Observation(text="Find the bed.", images={"head": np.full((8, 8, 3), 9, np.uint8)}, state=blank)
    info = {"success": success, "spl": 0.5 * success, "collisions": 2, "valid_action": valid}
    return Turn(seen, Decision(said, blank, blank == 0, mask_method=method), reward, success, False, info)


ARRIVED = Episode("a", 0, 0, (turn(reward=0.25), turn(reward=1.0, success=True)))
LOST = Episode("b", 0, 1, (turn("mumble", valid=False, method="failed"), turn()))
BROKEN = Episode("c", 1, 2, (), error="OSError: no such room")


def test_actions_that_cannot_be_read_are_in_no_histogram(nav_config):
    values = NavigationTask(nav_config.env).histograms([ARRIVED, LOST, BROKEN])
    assert values["rotation_angle_degrees"].tolist() == [30.0] * 3
    assert values["forward_meters"].tolist() == [0.5] * 3


def reported(task, *, episodes, num_envs):
    specs = task.specs(0, "test", groups=episodes)
    return task.report(run_specs(specs, task.make_env, task.random_actor(), num_envs=num_envs, label="walking"))


def test_a_report_has_a_mean_and_an_interval_of_everything(nav_config):
    task = NavigationTask(nav_config.env)
    report = reported(task, episodes=12, num_envs=5)
    names = {"success_rate", "spl", "turns", "valid_action_rate", "collisions"}
    assert report.keys() == names | {"episodes", "ci"}
    assert (report["episodes"], report["ci"].keys()) == (12, names)
    for name in names:
        low, high = report["ci"][name]
        assert low <= report[name] <= high
    assert report["valid_action_rate"] == 1.0
    assert task.report_metrics(report).keys() == {f"eval/{name}" for name in names}


def test_a_report_does_not_depend_on_how_many_walk_side_by_side(nav_config):
    task = NavigationTask(nav_config.env)
    assert reported(task, episodes=6, num_envs=1) == reported(task, episodes=6, num_envs=6)
