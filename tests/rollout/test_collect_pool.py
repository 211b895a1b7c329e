import os

import pytest

from lookact.rollout.collect import EnvPool
from lookact.rollout.samplers.random_actor import RandomActor
from lookact.rollout.samplers.settings import Concurrency
from lookact.types import EpisodeSpec, Observation

SPECS = [EpisodeSpec(f"e{i}", i, seed=i, options={"turns": 1 + i % 3}) for i in range(7)]
# a busy machine is no failure
ANY_TIME = 600.0


class Talk:
    """Says back what it was told, and in which process."""

    def reset(self, *, seed, options):
        self.left = options["turns"]
        return Observation(text=f"{seed}"), {}

    def step(self, action):
        self.left -= 1
        if action == "raise":
            raise RuntimeError("the floor gave way")
        return Observation(text=f"heard {action}"), 1.0, not self.left, False, {"pid": os.getpid()}

    def close(self):
        pass


def say_a_number(rng):
    return str(rng.integers(1000))


def said(episodes):
    return [[(turn.decision.action, turn.observation.text) for turn in episode.turns] for episode in episodes]


@pytest.mark.parametrize("env_workers", ["threads", "processes"])
def test_episodes_are_the_same_wherever_environments_step(env_workers):
    with EnvPool(Talk, Concurrency()) as pool:
        here = pool.collect(SPECS, RandomActor(say_a_number))
    with EnvPool(Talk, Concurrency(2, env_workers, ANY_TIME)) as pool:
        there = pool.collect(SPECS, RandomActor(say_a_number))
    assert said(there) == said(here)
    pids = {turn.info["pid"] for episode in there for turn in episode.turns}
    assert (pids == {os.getpid()}) == (env_workers == "threads")


@pytest.mark.parametrize(("most", "made"), [(0, 7), (3, 3), (20, 7)])
def test_at_most_so_many_episodes_run_side_by_side(most, made):
    class Widest(RandomActor):
        rows = 0

        def act(self, rows, observations):
            self.rows = max(self.rows, len(rows))
            return super().act(rows, observations)

    actor = Widest(say_a_number)
    with EnvPool(Talk, Concurrency(max_concurrent_episodes=most)) as pool:
        assert [episode.id for episode in pool.collect(SPECS, actor)] == [spec.id for spec in SPECS]
        assert (actor.rows, len(pool.envs)) == (made, made)
        # environments are kept from call to call
        kept = list(pool.envs)
        pool.collect(SPECS[:2], actor)
        assert pool.envs == kept


def test_an_environment_that_raises_in_its_process_ends_its_episode_alone():
    answers = iter(["raise", "go", "go"])
    with EnvPool(Talk, Concurrency(1, "processes", ANY_TIME)) as pool:
        failed, whole = pool.collect(SPECS[:2], RandomActor(lambda rng: next(answers)))
    assert failed.error == "EnvError: RuntimeError: the floor gave way"
    assert (whole.error, len(whole.turns)) == (None, 2)
