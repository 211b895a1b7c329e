import numpy as np
import pytest
import torch

from lookact.algorithms.reward_learning import RewardLearner, orders
from lookact.data.preferences import PreferenceStore
from lookact.errors import DataError
from lookact.judges.teachers import TEACHERS
from lookact.models.reward_model import ImageRewards, StateRewards


def true_reward(states):
    return np.tanh(states[..., 0]) - 0.5 * states[..., 1] ** 2


def judged(pairs, length, seed, teacher="oracle"):
    """Random segments of 4 numbers, and a teacher's verdicts on them."""
    segments = np.random.default_rng(seed).normal(size=(2, pairs, length, 4)).astype(np.float32)
    rewards = true_reward(segments).astype(np.float64)
    verdicts, _ = TEACHERS[teacher].prefer(rewards[0], rewards[1], seed=seed)
    store = PreferenceStore(capacity=pairs, shape=(length, 4))
    store.add(segments[0], segments[1], verdicts)
    return store


def rank_agreement(model, states):
    """Share of random pairs that the learned reward orders as the true one does."""
    learned, true = model(torch.from_numpy(states)).mean(dim=0).detach().numpy(), true_reward(states)
    one, two = np.arange(len(states)), np.random.default_rng(9).permutation(len(states))
    differing = np.abs(true[one] - true[two]) > 0.1
    return float(((learned[one] > learned[two]) == (true[one] > true[two]))[differing].mean())


@pytest.mark.parametrize(("length", "teacher"), [(1, "oracle"), (4, "oracle"), (1, "mistake")])
def test_the_order_of_a_known_reward_is_recovered(length, teacher):
    model = StateRewards(4, hidden=(64, 64), generator=torch.Generator().manual_seed(0))
    learner = RewardLearner(model, lr=2e-3)
    metrics = learner.fit(judged(300, length, 0, teacher), epochs=25, rows=64, enough=0.97, seed=0)
    held_out = np.random.default_rng(5).normal(size=(400, 4)).astype(np.float32)
    assert rank_agreement(model, held_out) > 0.85
    assert metrics["reward/accuracy"] > 0.85


@pytest.mark.slow
def test_pictures_can_be_ordered_too():
    # the higher the bright bar stands, the better
    heights = np.random.default_rng(0).integers(4, 44, size=(2, 60))
    frames = np.zeros((2, 60, 1, 48, 48, 3), np.uint8)
    for side in range(2):
        for index, height in enumerate(heights[side]):
            frames[side, index, 0, 44 - height : 48 - height] = 255
    store = PreferenceStore(capacity=60, shape=(1, 48, 48, 3), dtype=torch.uint8)
    store.add(frames[0], frames[1], np.where(heights[0] == heights[1], -1, heights[1] > heights[0]))
    model = ImageRewards((48, 48), members=2, generator=torch.Generator().manual_seed(0))
    RewardLearner(model, lr=1e-3).fit(store, epochs=25, rows=30, enough=0.99, seed=0)
    tall = np.zeros((2, 48, 48, 3), np.uint8)
    tall[0, 38:42], tall[1, 6:10] = 255, 255
    low, high = model(torch.from_numpy(tall)).mean(dim=0).tolist()
    assert high > low + 0.5


def test_fitting_ends_early_once_it_agrees():
    learner = RewardLearner(StateRewards(4, hidden=(64,), generator=torch.Generator().manual_seed(0)), lr=5e-3)
    metrics = learner.fit(judged(50, 1, 0), epochs=500, rows=50, enough=0.9, seed=0)
    assert 1 < metrics["reward/epochs"] < 500
    assert metrics["reward/accuracy"] >= 0.9


def test_a_soft_label_of_one_half_pulls_rewards_together():
    store = PreferenceStore(capacity=1, shape=(1, 4))
    first, second = np.ones((1, 1, 4), np.float32), -np.ones((1, 1, 4), np.float32)
    store.add(first, second, [0.5])
    model = StateRewards(4, hidden=(16,), generator=torch.Generator().manual_seed(0))
    learner = RewardLearner(model, lr=1e-2)
    for _ in range(10):
        metrics = learner.fit(store, epochs=20, rows=1, enough=2.0, seed=0)
    assert metrics["reward/gap"] < 0.02


def test_members_go_their_own_ways():
    ways = orders(3, 50, np.random.default_rng(0), bootstrap=False)
    assert all(sorted(way) == list(range(50)) for way in ways.tolist())
    assert ways[0].tolist() != ways[1].tolist()
    drawn = orders(3, 50, np.random.default_rng(0), bootstrap=True)
    assert all(len(set(way)) < 50 for way in drawn.tolist())


def test_an_interrupted_fit_goes_on_as_the_unbroken_one():
    store, learners = judged(40, 1, 0), []
    for _ in range(2):
        model = StateRewards(4, hidden=(8,), generator=torch.Generator().manual_seed(0))
        learners.append(RewardLearner(model))
    whole, broken = learners
    for learner in learners:
        learner.fit(store, epochs=2, rows=16, enough=2.0, seed=0)
    model = StateRewards(4, hidden=(8,), generator=torch.Generator().manual_seed(1))
    model.load_state_dict(broken.model.state_dict())
    resumed = RewardLearner(model)
    resumed.load_state_dict(broken.state_dict())
    for learner in (whole, resumed):
        learner.fit(store, epochs=2, rows=16, enough=2.0, seed=0)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name])


def test_nothing_to_learn_from_is_told():
    learner = RewardLearner(StateRewards(4, generator=torch.Generator().manual_seed(0)))
    with pytest.raises(DataError, match="nothing but -1"):
        learner.fit(PreferenceStore(capacity=3, shape=(1, 4)), epochs=1, rows=1, enough=1.0, seed=0)
