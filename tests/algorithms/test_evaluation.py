import numpy as np
import pytest

from lookact.algorithms.evaluation import Evaluator, fill_store, run_split
from lookact.data.episode_store import EpisodeStore
from lookact.rollout.collect import make_specs
from lookact.rollout.samplers.random_actor import RandomActor
from lookact.types import Observation

SPECS = make_specs(0, "test", groups=5)


class Coin:
    """Ends after one turn, which pays what its seed says."""

    made = 0

    def __init__(self):
        Coin.made += 1

    def reset(self, *, seed, options=None):
        self.paid = float(np.random.default_rng(seed).random())
        return Observation("Heads or tails?", {}), {}

    def step(self, action):
        return Observation("", {}), self.paid, True, False, {"said": action}


@pytest.fixture
def actor():
    return RandomActor(lambda rng: str(rng.choice(["heads", "tails"])))


def test_a_split_does_not_depend_on_how_many_environments_run_it(actor):
    Coin.made = 0
    one, many = (run_split(SPECS, Coin, actor, num_envs=envs) for envs in (1, 8))
    assert [(e.id, e.total_reward, e.turns[0].info) for e in one] == [
        (e.id, e.total_reward, e.turns[0].info) for e in many
    ]
    assert Coin.made == 1 + len(SPECS)


def test_a_store_is_filled_up_and_what_is_there_counts(actor, tmp_path):
    drawn = []

    def draw(episode):
        drawn.append(episode.id)
        return episode

    first = fill_store(tmp_path, SPECS[:2], Coin, actor, num_envs=2, draw=draw)
    assert (first["episodes"], first["collected"], first["kept"]) == (2, 2, 0)
    second = fill_store(tmp_path, SPECS, Coin, actor, num_envs=2, draw=draw)
    assert (second["episodes"], second["collected"], second["kept"]) == (5, 3, 2)
    assert drawn == [spec.id for spec in SPECS]
    assert EpisodeStore(tmp_path).ids() == set(drawn)


def test_final_reports_are_of_the_greedy_and_of_the_sampled_policy(monkeypatch):
    monkeypatch.setattr(Evaluator, "report", lambda self, policy, name, *, split, episodes, greedy: (name, greedy))
    evaluator = Evaluator(None, None, "", 0, 1, None)
    assert evaluator.final_reports(None, "after", episodes=2) == {
        "greedy": ("after-greedy", True),
        "sampled": ("after-sampled", False),
    }
    assert evaluator.final_reports(None, "after", episodes=0) == {}
