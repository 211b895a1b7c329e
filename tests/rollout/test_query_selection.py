import numpy as np
import pytest
import torch

from lookact.data.replay import Replay
from lookact.errors import DataError
from lookact.models.reward_model import ImageRewards, StateRewards
from lookact.rollout.query_selection import draw_pairs, features_of, k_centre, select

SIZE = 48


def filled(values, *, episode=10):
    """A replay of states (value, -value) and grey frames, as many as there are values between 0 and 1."""
    replay = Replay(capacity=len(values), state_size=2, action_size=1, frame_shape=(SIZE, SIZE, 3))
    for i, value in enumerate(values):
        state, frame = np.array([value, -value]), np.full((SIZE, SIZE, 3), round(255 * value), np.uint8)
        last = (i + 1) % episode == 0
        replay.add(state, np.zeros(1), 0.0, state, terminated=False, truncated=last, frame=frame)
    return replay


def as_pairs(*pairs):
    return np.array(pairs, dtype=np.int64)[..., None]


def linear_members(weights):
    """State rewards in which member i answers tanh(weights[i] * value)."""
    model = StateRewards(2, members=len(weights), hidden=(), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.network.weights[0].copy_(torch.tensor([[[w, 0.0]] for w in weights]))
        model.network.biases[0].zero_()
    return model


@pytest.mark.parametrize("length", [1, 4])
def test_pairs_are_of_different_segments_within_episodes(length):
    replay = filled(np.linspace(0, 1, 30))
    pairs = draw_pairs(replay, length=length, count=200, rng=np.random.default_rng(0))
    assert pairs.shape == (200, 2, length)
    assert (pairs[:, 0, 0] != pairs[:, 1, 0]).all()
    assert (pairs // 10 == pairs[..., :1] // 10).all()
    assert np.array_equal(pairs, pairs[..., :1] + np.arange(length))


def test_too_few_segments_are_told():
    with pytest.raises(DataError, match="1 segments of 10 steps"):
        draw_pairs(filled(np.ones(10)), length=10, count=1, rng=np.random.default_rng(0))


def test_disagreement_picks_the_pairs_on_which_members_part():
    replay, model = filled([0.5, 0.5, 0.0, 1.0, 0.4, 0.6]), linear_members([2.0, 2.0, -2.0])
    # equal values: all members say one half; apart: two say the second, one the first; the farther, the more
    pairs = as_pairs([0, 1], [4, 5], [2, 3])
    chosen = select("disagreement", pairs, count=2, replay=replay, model=model, kind="state")
    assert chosen[..., 0].tolist() == [[2, 3], [4, 5]]


def test_members_that_agree_strongly_are_not_asked_about():
    replay, model = filled([0.0, 1.0, 0.5, 0.6]), linear_members([3.0, 3.0, 3.0])
    pairs = as_pairs([0, 1], [2, 3])
    # certain of the first pair, unsure of the second, and of one mind on both
    assert select("entropy", pairs, count=1, replay=replay, model=model, kind="state")[0, :, 0].tolist() == [2, 3]


def test_k_centre_spreads_out():
    # three heaps: the point farthest from the mean, then the heap farthest from it, then the third heap
    points = torch.tensor([[0.0], [0.1], [10.0], [10.1], [4.0], [4.1]])
    assert k_centre(points, 3).tolist() == [3, 0, 5]
    assert sorted(k_centre(points, 99).tolist()) == list(range(6))
    assert k_centre(torch.zeros(4, 2), 4).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("strategy", ["uniform", "disagreement", "entropy", "k_centre"])
@pytest.mark.parametrize("kind", ["state", "frame"])
def test_every_strategy_works_with_states_and_with_pictures(strategy, kind):
    replay = filled(np.linspace(0, 1, 30))
    generator = torch.Generator().manual_seed(0)
    model = StateRewards(2, generator=generator) if kind == "state" else ImageRewards((SIZE, SIZE), generator=generator)
    pairs = draw_pairs(replay, length=2, count=12, rng=np.random.default_rng(1))
    chosen = select(strategy, pairs, count=5, replay=replay, model=model, kind=kind)
    assert chosen.shape == (5, 2, 2)
    offered = {pair.tobytes() for pair in pairs}
    assert len({pair.tobytes() for pair in chosen} & offered) == 5


def test_features_are_of_the_moment_after_the_action():
    replay = Replay(capacity=2, state_size=1, action_size=1)
    replay.add(np.array([1]), np.zeros(1), 0.0, np.array([2]), terminated=False, truncated=False)
    assert features_of(replay, np.array([[[0]]]), "state").tolist() == [[[[2.0]]]]
    with pytest.raises(DataError, match="no frames"):
        features_of(replay, np.array([0]), "frame")
