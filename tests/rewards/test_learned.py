import numpy as np
import pytest
import torch

from lookact.data.replay import Replay
from lookact.models.reward_model import ImageRewards, StateRewards
from lookact.rewards.learned import LearnedReward


def filled(kind, steps=60, capacity=40):
    rng = np.random.default_rng(0)
    replay = Replay(
        capacity=capacity, state_size=3, action_size=1, frame_shape=(48, 48, 3) if kind == "frame" else None
    )
    for _ in range(steps):
        frame = rng.integers(256, size=(48, 48, 3), dtype=np.uint8) if kind == "frame" else None
        replay.add(
            rng.normal(size=3), np.zeros(1), 0.0, rng.normal(size=3), terminated=False, truncated=False, frame=frame
        )
    return replay


def make(kind, **how):
    generator = torch.Generator().manual_seed(0)
    model = StateRewards(3, generator=generator) if kind == "state" else ImageRewards((48, 48), generator=generator)
    return LearnedReward(model, kind, chunk=16, **how)


@pytest.mark.parametrize("kind", ["state", "frame"])
def test_a_settled_replay_has_mean_zero_and_deviation_one_and_keeps_the_order(kind):
    replay, reward = filled(kind), make(kind)
    reward.settle(replay)
    slots = replay.slots(np.arange(40))
    raw = reward.model(torch.from_numpy(slots.features(kind))).mean(dim=0)
    assert replay.rewards.mean().item() == pytest.approx(0, abs=1e-4)
    assert replay.rewards.std(correction=0).item() == pytest.approx(1, abs=1e-3)
    assert torch.equal(replay.rewards.argsort(), raw.argsort())


def test_a_peaked_reward_keeps_the_order_and_pays_the_best_most_of_all():
    replay, reward = filled("state"), make("state", peak=4.0)
    reward.settle(replay)
    raw = reward.model(torch.from_numpy(replay.slots(np.arange(40)).next_states)).mean(dim=0)
    paid = replay.rewards.sort().values
    assert torch.equal(replay.rewards.argsort(), raw.argsort())
    assert paid[-1].item() == pytest.approx(1.0, rel=0.05)
    assert np.exp(-6.0) < paid[0].item() <= np.exp(-4.0)
    assert paid.median() < 0.3


def test_a_new_transition_gets_what_relabelling_gives_it():
    replay, reward = filled("state"), make("state")
    reward.settle(replay)
    one = reward.of(replay.slots(np.array([7])).next_states)
    assert one[0] == pytest.approx(replay.rewards[7].item(), abs=1e-5)


def test_scale_and_shift_are_kept():
    reward, other = make("state"), make("state")
    reward.settle(filled("state"))
    other.load_state_dict(reward.state_dict())
    assert (other.shift, other.scale) == (reward.shift, reward.scale)


def test_equal_rewards_stay_finite():
    replay, reward = filled("state"), make("state")
    with torch.no_grad():
        for parameter in reward.model.parameters():
            parameter.zero_()
    reward.settle(replay)
    assert replay.rewards.tolist() == [0.0] * 40
