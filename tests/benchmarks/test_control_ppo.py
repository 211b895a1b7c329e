import importlib.util

import numpy as np
import pytest
import torch

from benchmarks import control, control_ppo
from benchmarks.control_ppo import Load
from benchmarks.timing import Timing
from lookact.envs.vector.vector_env import InlineVectorEnv
from lookact.recipes.vla_ppo.task import table_maker
from lookact.rollout.vector_rollout import ControlActor

SMALL = Load(rows=2, steps=8, epochs=2, minibatch=4, picture_rows=(2, 3), picture_steps=2)


def race_here(ways, *, repetitions):
    """Every way twice, in this process."""
    facts = {}
    for side, (prepare, arguments) in ways.items():
        work = prepare(*arguments)
        facts[side] = [work(), work()][-1]
    return {side: Timing((1.0,), (1.0,), 0.0, 0.0, told) for side, told in facts.items()}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("stable_baselines3") is None, reason="needs lookact[bench]")
def test_every_side_runs_and_does_as_much_as_the_other(monkeypatch):
    monkeypatch.setattr(control_ppo, "race", race_here)
    rows = [measure() for measure in control_ppo.measures(1, SMALL)]
    for row, done in zip(rows, (16, 16, 4, 6), strict=True):
        facts = [row.detail[side]["facts"] for side in ("ours", "against")]
        assert facts[0]["env_steps"] == facts[1]["env_steps"] == done
    for row in rows[:2]:
        assert [row.detail[side]["facts"]["gradient_steps"] for side in ("ours", "against")] == [8, 8]
    assert [row.aims[0] for row in rows] == [f"ratio at least {bound}" for bound in ("1.5", "1", "0.6", "0.6")]


@pytest.mark.parametrize("encode_once", [False, True])
def test_both_sides_train_the_same_network_on_what_the_same_tables_show(encode_once):
    pytest.importorskip("stable_baselines3", reason="needs lookact[bench]")
    from stable_baselines3.common.utils import obs_as_tensor

    from benchmarks.control_sb3 import make_ppo

    policy, maker = control_ppo.recipe_policy(), table_maker(control_ppo.RECIPE.env)
    sizes = {"rows": 2, "steps": 2, "lr": 1e-4, "encode_once": encode_once}
    theirs = make_ppo(policy, maker, control_ppo.settings(SMALL), **sizes)
    worlds = InlineVectorEnv(maker, 2)
    actions, finals = np.full((2, 4), 0.3, np.float32), {}
    seeds = [3, 4]
    theirs.env.seed(seeds[0])
    shown = theirs.env.reset()
    actor = ControlActor(policy, 2)
    ours, _ = worlds.reset(lambda row, episode: (seeds[row], {}))
    for _ in range(3):
        wanted = policy(actor.observe(ours))
        with torch.no_grad():
            values = theirs.policy.predict_values(obs_as_tensor(shown, "cpu"))
        torch.testing.assert_close(values, wanted.values.detach(), rtol=1e-4, atol=1e-5)
        step = worlds.step(actions)
        actor.update(torch.from_numpy(actions), None)
        ours, finals = step.observations, step.finals
        shown = theirs.env.step(actions)[0]
    assert not finals
    learned = {id(parameter) for group in theirs.policy.optimizer.param_groups for parameter in group["params"]}
    assert learned == {id(parameter) for parameter in policy.parameters() if parameter.requires_grad}


def fake_race(ways, *, repetitions):
    seconds = {"ours": (2.0, 2.0), "against": (5.0, 3.0)}
    return {side: Timing(seconds[side], seconds[side], 100.0, 150.0, {"env_steps": 1000}) for side in ways}


def test_a_row_tells_rates_and_how_many_times_longer_the_other_took(monkeypatch):
    monkeypatch.setattr(control_ppo, "race", fake_race)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    row = control_ppo.ppo_row(Load(), 2, encode_once=False)
    assert (row.ours, row.against, row.ratio, row.met) == ("500 steps/s", "250 steps/s", 2.0, (True,))
    share = control_ppo.picture_row(Load(), 2)
    assert (share.ratio, share.ratio_range, share.met) == (2.0, (1.5, 2.5), (True,))


def test_without_stable_baselines3_its_row_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(control_ppo, "race", fake_race)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    row = control_ppo.ppo_row(Load(), 2, encode_once=False)
    assert (row.ours, row.ratio, row.met) == ("500 steps/s", None, ())
    assert row.against == "not installed: pip install 'lookact[bench]'"


def test_the_bench_joins_the_parts_that_are_there(monkeypatch):
    monkeypatch.setattr(control, "PARTS", ("benchmarks.control_ppo", "benchmarks.not_there"))
    monkeypatch.setattr(control_ppo, "race", fake_race)
    told = control.main(repetitions=2)
    assert [row["name"] for row in told["rows"]] == [
        "PPO, frames in the buffer",
        "PPO, features in the buffer",
        "rollout with pictures, 8 environments",
        "rollout with pictures, 32 environments",
    ]
    assert "over 2 repetitions" in told["notes"][0]
    assert told["notes"][1:] == list(control_ppo.NOTES)
