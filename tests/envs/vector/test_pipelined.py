import numpy as np
import pytest

from lookact.envs.vector.vector_env import PipelinedVectorEnv


def maker():
    """Makes environments that show (their seed, steps taken); a seed of 2 dies in its first step."""

    def make():
        import os

        import gymnasium
        import numpy as np

        class Counting(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float32)
            action_space = gymnasium.spaces.Box(-9, 9, (1,), np.float32)

            def reset(self, *, seed=None, options=None):
                self.name, self.steps = seed, 0
                return self.shown(), {}

            def shown(self):
                return np.array([self.name, self.steps], np.float32)

            def step(self, action):
                self.steps += 1
                if self.name == 2 and action[0] == 9:
                    os._exit(3)
                return self.shown(), float(action[0]), False, False, {}

        return Counting()

    return make


@pytest.fixture(scope="module")
def relay():
    envs = PipelinedVectorEnv(maker(), 5, workers=1, max_restarts=3)
    yield envs
    envs.close()


def plan(row, episode):
    return row + 100 * episode, {}


def test_halves_step_by_themselves_and_plans_count_through_all_rows(relay):
    first, second = relay.parts
    assert (relay.num_envs, first.num_envs, second.num_envs) == (5, 3, 2)
    assert [part.reset(plan)[0].arrays["state"][:, 0].tolist() for part in relay.parts] == [[0, 1, 2], [3, 4]]
    # both are under way at once
    first.send(np.array([[1], [2], [3]], np.float32))
    second.send(np.array([[4], [5]], np.float32))
    assert second.receive().rewards.tolist() == [4, 5]
    assert first.receive().observations.arrays["state"].tolist() == [[0, 1], [1, 1], [2, 1]]


def test_a_half_that_dies_is_started_again_and_the_other_does_not_notice(relay):
    first, second = relay.parts
    for part in relay.parts:
        part.reset(plan)
    before = relay.restarts
    first.send(np.full((3, 1), 9, np.float32))
    second.send(np.full((2, 1), 9, np.float32))
    cut = first.receive()
    assert cut.truncated.all()
    assert cut.observations.arrays["state"].tolist() == [[100, 0], [101, 0], [102, 0]]
    assert second.receive().rewards.tolist() == [9, 9]
    assert relay.restarts == before + 1


def test_one_row_is_one_part_and_every_half_has_a_process():
    lone = PipelinedVectorEnv(maker(), 1, workers=8)
    assert [part.num_envs for part in lone.parts] == [1]
    lone.close()
    pair = PipelinedVectorEnv(maker(), 4, workers=3)
    assert [len(part._workers) for part in pair.parts] == [1, 1]
    pair.close()
