"""Workers are real processes, which start in about half a second each: tests share what they can."""

import functools
import os
import signal

import numpy as np
import pytest

from lookact.envs.tabletop.env import Tabletop
from lookact.envs.vector.vector_env import VectorEnv
from lookact.errors import ConfigError, EnvError
from lookact.seeding import derive


def counting_env(**behaviour):
    """Makes environments that show (seed % 1000, steps taken) and end as told; defined inside, to travel whole."""

    def make():
        import os
        import time

        import gymnasium
        import numpy as np

        class Counting(gymnasium.Env):
            observation_space = gymnasium.spaces.Dict(
                {
                    "state": gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float32),
                    "instruction": gymnasium.spaces.Text(20),
                }
            )
            action_space = gymnasium.spaces.Box(-100, 100, (1,), np.float32)

            def reset(self, *, seed=None, options=None):
                self.name, self.steps = (seed or 0) % 1000, 0
                return self.shown(), {"options": dict(options)}

            def shown(self):
                return {"state": np.array([self.name, self.steps], np.float32), "instruction": f"seed {self.name}"}

            def step(self, action):
                self.steps += 1
                value = float(action[0])
                if value == behaviour.get("sleep_on"):
                    time.sleep(60)
                if value == behaviour.get("die_on"):
                    os._exit(3)
                if value == behaviour.get("raise_on"):
                    raise RuntimeError("the table broke")
                terminated = self.steps == behaviour.get("terminate_at")
                return self.shown(), value, terminated, self.steps == 5 and not terminated, {"steps": self.steps}

        return Counting()

    return make


def plan(row: int, episode: int) -> tuple[int, dict]:
    return 100 * row + episode, {"row": row}


def vector(rows=2, workers=1, **behaviour) -> VectorEnv:
    # only who sleeps on purpose is given little time: a busy machine is no failure
    seconds = 5.0 if "sleep_on" in behaviour else 60.0
    return VectorEnv(counting_env(**behaviour), rows, workers=workers, plan_episode=plan, step_seconds=seconds)


def names(step) -> list[int]:
    return step.observations.arrays["state"][:, 0].astype(int).tolist()


def counts(step) -> list[int]:
    return step.observations.arrays["state"][:, 1].astype(int).tolist()


def act(env: VectorEnv, *values: float):
    return env.step(np.array(values, np.float32)[:, None])


def test_an_ended_episode_shows_the_next_ones_first_observation_and_keeps_its_last_apart():
    env = vector(rows=3, workers=2)
    seen, infos = env.reset()
    assert seen.arrays["state"].tolist() == [[0, 0], [100, 0], [200, 0]]
    assert [info["options"]["row"] for info in infos] == [0, 1, 2]
    for count in range(1, 5):
        step = act(env, 1, 2, 3)
        assert counts(step) == [count] * 3
        assert step.rewards.tolist() == [1, 2, 3]
        assert step.finals == {}
        assert not step.terminated.any()
        assert not step.truncated.any()
    step = act(env, 1, 2, 3)
    # the fifth step ends all three: reward, flags and info are of the old episode, the observation of the new one
    assert step.rewards.tolist() == [1, 2, 3]
    assert step.truncated.tolist() == [True] * 3
    assert not step.terminated.any()
    assert [info["steps"] for info in step.infos] == [5, 5, 5]
    assert names(step) == [1, 101, 201]
    assert counts(step) == [0, 0, 0]
    assert step.observations.texts["instruction"] == ("seed 1", "seed 101", "seed 201")
    assert {row: final["state"].tolist() for row, final in step.finals.items()} == {0: [0, 5], 1: [100, 5], 2: [200, 5]}
    assert step.finals[1]["instruction"] == "seed 100"
    # the next step goes on in the new episode: none is lost
    step = act(env, 1, 2, 3)
    assert (names(step), counts(step)) == ([1, 101, 201], [1, 1, 1])
    env.close()


def test_termination_is_told_from_truncation():
    env = vector(rows=1, terminate_at=3)
    env.reset()
    flags = []
    for _ in range(6):
        step = act(env, 0)
        flags.append((step.terminated.item(), step.truncated.item(), 0 in step.finals))
    assert flags == [(False, False, False), (False, False, False), (True, False, True)] * 2
    env.close()


def test_the_observations_of_a_step_stay_as_they_were():
    env = vector(rows=1)
    env.reset()
    first = act(env, 0)
    act(env, 0)
    assert counts(first) == [1]
    env.close()


def test_a_killed_worker_is_started_again_and_its_episodes_are_marked():
    env = vector(rows=4, workers=2)
    env.reset()
    act(env, 1, 1, 1, 1)
    os.kill(env._workers[0].process.pid, signal.SIGKILL)
    step = act(env, 1, 1, 1, 1)
    assert step.truncated.tolist() == [True, False, True, False]
    assert not step.terminated.any()
    assert step.rewards.tolist() == [0, 1, 0, 1]
    assert [info.get("worker_restarted", False) for info in step.infos] == [True, False, True, False]
    # the last thing seen before the accident, and the next episode's first
    assert {row: final["state"].tolist() for row, final in step.finals.items()} == {0: [0, 1], 2: [200, 1]}
    assert (names(step), counts(step)) == ([1, 100, 201, 300], [0, 2, 0, 2])
    assert env.restarts == 1
    step = act(env, 1, 1, 1, 1)
    assert counts(step) == [1, 3, 1, 3]
    assert not step.truncated.any()
    env.close()


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        pytest.param({"sleep_on": 9}, "did not answer in 5 s", marks=pytest.mark.slow),
        ({"die_on": 9}, "died"),
        ({"raise_on": 9}, "RuntimeError: the table broke"),
    ],
)
def test_a_worker_that_sleeps_dies_or_raises_is_started_again(behaviour, reason, caplog):
    env = vector(rows=2, workers=2, **behaviour)
    env.reset()
    step = act(env, 0, 9)
    assert step.truncated.tolist() == [False, True]
    assert reason in step.infos[1]["reason"]
    assert reason in caplog.text
    assert (names(step), counts(step)) == ([0, 101], [1, 0])
    assert counts(act(env, 0, 0)) == [2, 1]
    assert env.restarts == 1
    env.close()


def test_a_worker_has_longer_to_start_than_to_step():
    # a process alone takes longer to start than the step's limit
    env = VectorEnv(counting_env(), 1, workers=1, plan_episode=plan, step_seconds=0.01, reset_seconds=60.0)
    assert env.reset()[0].arrays["state"].tolist() == [[0, 0]]
    assert [worker.started for worker in env._workers] == [True]
    assert env.restarts == 0
    env.close()


def test_a_worker_that_does_not_start_in_time_is_told(caplog):
    env = VectorEnv(counting_env(), 1, workers=1, plan_episode=plan, start_seconds=0.01, max_restarts=1)
    with pytest.raises(EnvError, match=r"restarted 1 times, the last because: the worker did not answer in 0\.01 s"):
        env.reset()
    env.close()


def test_too_many_restarts_stop_the_run():
    env = VectorEnv(counting_env(raise_on=9), 1, workers=1, max_restarts=1)
    env.reset()
    act(env, 9)
    with pytest.raises(EnvError, match=r"restarted 1 times, the last because: RuntimeError: the table broke"):
        act(env, 9)
    env.close()


def test_close_ends_every_process():
    env = vector(rows=2, workers=2, sleep_on=9)
    env.reset()
    processes = [worker.process for worker in env._workers]
    env.close()
    assert not any(process.is_alive() for process in processes)


def test_more_workers_than_rows_are_refused():
    with pytest.raises(ConfigError, match="3 workers for 2 environments"):
        vector(rows=2, workers=3)


@pytest.mark.slow
def test_tabletop_in_workers_is_bit_for_bit_the_tabletop_here():
    make = functools.partial(Tabletop, image_size=48, max_steps=6)
    actions = np.random.default_rng(0).uniform(-1, 1, (8, 3, 4)).astype(np.float32)
    env = VectorEnv(make, 3, workers=2, seed=5)
    seen = [env.reset()[0], *(env.step(action) for action in actions)]
    env.close()
    for row in range(3):
        here = make()
        shown, _ = here.reset(seed=derive(5, "episode", row, 0))
        assert_shown(seen[0].row(row), shown)
        for action, step in zip(actions, seen[1:]):
            shown, reward, terminated, truncated, info = here.step(action[row])
            assert step.rewards[row] == np.float32(reward)
            assert (step.terminated[row], step.truncated[row]) == (terminated, truncated)
            if truncated:
                assert_shown(step.finals[row], shown)
                shown, _ = here.reset(seed=derive(5, "episode", row, 1))
            assert_shown(step.observations.row(row), shown)
        here.close()


def assert_shown(first: dict, second: dict) -> None:
    assert set(first) == set(second)
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_a_resumed_vector_goes_on_bit_for_bit():
    make = functools.partial(Tabletop, cameras=(), max_steps=6)
    actions = np.random.default_rng(0).uniform(-1, 1, (10, 3, 4)).astype(np.float32)
    env = VectorEnv(make, 3, workers=2, seed=5)
    env.reset()
    for action in actions[:4]:
        env.step(action)
    state = env.state_dict()
    unbroken = [env.step(action) for action in actions[4:]]
    env.close()
    # another number of processes changes nothing
    other = VectorEnv(make, 3, workers=1, seed=5)
    other.load_state_dict(state)
    resumed = [other.step(action) for action in actions[4:]]
    other.close()
    for first, second in zip(unbroken, resumed):
        assert np.array_equal(first.observations.arrays["state"], second.observations.arrays["state"])
        assert np.array_equal(first.rewards, second.rewards)
        assert first.truncated.tolist() == second.truncated.tolist()
