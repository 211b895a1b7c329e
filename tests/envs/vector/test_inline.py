"""Rows in this process keep `VectorEnv`'s manners to the letter."""

import gymnasium
import numpy as np

from lookact.envs.vector.vector_env import InlineVectorEnv, VectorEnv


def counting_env():
    """Shows (seed, steps taken), pays the action, ends by the action's sign; defined inside, to travel whole."""
    import gymnasium
    import numpy as np

    class Counting(gymnasium.Env):
        observation_space = gymnasium.spaces.Dict(
            {"state": gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float32), "instruction": gymnasium.spaces.Text(20)}
        )
        action_space = gymnasium.spaces.Box(-100, 100, (1,), np.float32)

        def reset(self, *, seed=None, options=None):
            self.name, self.steps = seed, options.get("from", 0)
            return self.shown(), {"begun": seed}

        def shown(self):
            return {"state": np.array([self.name, self.steps], np.float32), "instruction": f"seed {self.name}"}

        def step(self, action):
            self.steps += 1
            return self.shown(), float(action[0]), bool(action[0] > 5), bool(action[0] < -5), {"steps": self.steps}

    return Counting()


def plan(row, episode):
    return 100 * row + episode, {"from": 10 * row}


def told(step):
    """A step as plain data."""
    finals = {row: (final["state"].tolist(), final["instruction"]) for row, final in sorted(step.finals.items())}
    seen = step.observations
    ends = [step.rewards.tolist(), step.terminated.tolist(), step.truncated.tolist(), step.infos]
    return [seen.arrays["state"].tolist(), seen.texts, *ends, finals]


ACTIONS = [[0, 0, 0], [6, 0, -6], [0, 1, 2], [-6, 6, 6], [6, -6, 3]]


def test_it_steps_as_workers_do():
    vector = VectorEnv(counting_env, 3, workers=2, plan_episode=plan)
    inline = InlineVectorEnv(counting_env, 3, plan_episode=plan)
    try:
        for env in (vector, inline):
            env.reset()
        for actions in ACTIONS:
            column = np.array(actions, np.float32)[:, None]
            assert told(inline.step(column)) == told(vector.step(column))
        assert inline.episodes == vector.episodes == [4, 3, 3]
        # another plan begins at its first episode
        for env in (vector, inline):
            seen, infos = env.reset(lambda row, episode: (7 + row + episode, {}))
            assert seen.arrays["state"].tolist() == [[7, 0], [8, 0], [9, 0]]
            assert [info["begun"] for info in infos] == [7, 8, 9]
            assert env.episodes == [1, 1, 1]
    finally:
        vector.close()
        inline.close()


def test_rows_have_streams_of_their_own_without_a_plan():
    first, second = (InlineVectorEnv(counting_env, 2, seed=5) for _ in range(2))
    seeds = [first.plan_episode(row, episode)[0] for row in range(2) for episode in range(2)]
    assert len(set(seeds)) == 4
    assert seeds == [second.plan_episode(row, episode)[0] for row in range(2) for episode in range(2)]


def test_a_plain_box_is_the_state():
    env = InlineVectorEnv(lambda: gymnasium.make("Pendulum-v1"), 2)
    seen, _ = env.reset()
    step = env.step(np.zeros((2, 1), np.float32))
    assert seen.arrays["state"].shape == (2, 3)
    assert step.finals == {}
    assert step.rewards.dtype == np.float32
