import weakref
from unittest.mock import patch

import numpy as np
import pytest
from torch import nn

from lookact.algorithms.evaluation import Evaluator, fill_store, run_specs
from lookact.algorithms.rollouts import LocalRollouts
from lookact.data.episode_store import EpisodeStore
from lookact.rollout.collect import make_specs
from lookact.rollout.samplers.random_actor import RandomActor
from lookact.rollout.samplers.settings import Sampling
from lookact.training.distributed import gather
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

    def close(self):
        pass


@pytest.fixture
def actor():
    return RandomActor(lambda rng: str(rng.choice(["heads", "tails"])))


def test_a_split_does_not_depend_on_how_many_environments_run_it(actor):
    Coin.made = 0
    one, many = (run_specs(SPECS, Coin, actor, num_envs=envs, label="evaluating") for envs in (1, 8))
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


def test_no_more_episodes_are_held_than_run_side_by_side(actor, tmp_path, monkeypatch):
    seen, most = [], []

    def watch(episode):
        seen.append(weakref.ref(episode))
        most.append(sum(each() is not None for each in seen))
        return episode

    specs = make_specs(0, "test", groups=40)
    counts = fill_store(tmp_path, specs, Coin, actor, num_envs=4, draw=watch)
    assert counts["episodes"] == 40
    assert max(most) <= 4
    # counted by the manifest: no episode is read back
    monkeypatch.setattr(EpisodeStore, "load", None)
    assert fill_store(tmp_path, specs, Coin, actor, num_envs=4, draw=watch) == counts | {"collected": 0, "kept": 40}


class Coins:
    """A task of five coins, whose report is who tossed how many, by process."""

    make_env = Coin

    def specs(self, seed, split, *, groups):
        return SPECS[:groups]

    def add_floor_map(self, specs):
        return lambda episode: episode

    def report(self, episodes):
        return gather([episode.id for episode in episodes])


def measured(folder, central):
    actor = RandomActor(lambda rng: str(rng.choice(["heads", "tails"])))
    rollouts = LocalRollouts(nn.Linear(1, 1), actor, None, lambda version: {}, central=central, closing=None)
    evaluator = Evaluator(Coins(), Sampling(), "", 0, 2, folder, rollouts=rollouts)
    with patch("lookact.algorithms.evaluation.HFSampler", lambda policy, sampling, system: actor):
        return evaluator.report(rollouts.chat, "step", split="test", episodes=5, greedy=True)


def test_processes_share_an_evaluation_but_where_one_has_the_engine(together, tmp_path):
    ids = [spec.id for spec in SPECS]
    assert together(measured, tmp_path, False) == [[ids[::2], ids[1::2]]] * 2
    assert together(measured, tmp_path, True) == [[ids, []]] * 2


def test_final_reports_are_of_the_greedy_and_of_the_sampled_policy(monkeypatch):
    monkeypatch.setattr(Evaluator, "report", lambda self, policy, name, *, greedy, **rest: (name, greedy))
    evaluator = Evaluator(None, None, "", 0, 1, None)
    assert evaluator.final_reports(None, "after", episodes=2) == {
        "greedy": ("after-greedy", True),
        "sampled": ("after-sampled", False),
    }
    assert evaluator.final_reports(None, "after", episodes=0) == {}
