import pytest
import torch

from lookact.errors import ConfigError
from lookact.models.reward_model import (
    ImageRewards,
    StateRewards,
    preference_probabilities,
    segment_rewards,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def images(*shape, seed=0):
    return torch.randint(256, (*shape, 50, 48, 3), generator=seeded(seed), dtype=torch.uint8)


def states(*shape):
    return torch.randn(*shape, 4, generator=seeded(1))


MODELS = {
    "state": (lambda: StateRewards(4, hidden=(16,), generator=seeded()), states),
    "frame": (lambda: ImageRewards((50, 48), generator=seeded()), images),
}


@pytest.mark.parametrize("kind", MODELS)
def test_members_differ_and_rewards_have_no_bounds(kind):
    make, draw = MODELS[kind]
    model = make()
    rewards = model(draw(6))
    assert rewards.shape == (3, 6)
    assert (rewards[0] - rewards[1]).abs().min() > 1e-5
    with torch.no_grad():
        (model.network if kind == "state" else model.head).biases[-1].add_(1e3)
    assert torch.allclose(model(draw(6)), rewards + 1e3, atol=1e-2)


@pytest.mark.parametrize("kind", MODELS)
def test_a_members_own_rows_get_its_own_answer(kind):
    make, draw = MODELS[kind]
    model, rows = make(), draw(3, 2)
    rewards = model(rows)
    for member in range(3):
        assert torch.allclose(rewards[member], model(rows[member])[member], atol=1e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_a_segments_reward_is_the_sum_of_its_steps(kind):
    make, draw = MODELS[kind]
    model, segments = make(), draw(2, 5)
    expected = torch.stack([model(segments[i]).sum(dim=1) for i in range(2)], dim=1)
    assert torch.allclose(segment_rewards(model, segments), expected, atol=1e-5)
    own = segments.expand(3, *segments.shape)
    assert torch.allclose(segment_rewards(model, own), expected, atol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_swapping_a_pair_swaps_the_preference(kind):
    make, draw = MODELS[kind]
    model, pairs = make(), draw(2, 7, 1)
    forth = preference_probabilities(model, pairs[0], pairs[1], chunk=3)
    back = preference_probabilities(model, pairs[1], pairs[0])
    assert forth.shape == (3, 7)
    assert torch.allclose(forth + back, torch.ones(3, 7), atol=1e-6)


def test_a_state_model_that_has_looked_over_states_does_not_care_for_their_unit():
    metres = torch.randn(50, 3, generator=seeded())
    models = [StateRewards(3, generator=seeded()) for _ in range(2)]
    for model, states in zip(models, (metres, 100.0 * metres + 7.0)):
        model.fit_normaliser(states)
    assert torch.allclose(models[0](metres), models[1](100.0 * metres + 7.0), atol=1e-5)


def test_pictures_too_small_for_the_convolutions_are_refused():
    with pytest.raises(ConfigError, match="46x64 are too small"):
        ImageRewards((46, 64), generator=seeded())
    assert ImageRewards((47, 47), generator=seeded())(torch.zeros(1, 47, 47, 3, dtype=torch.uint8)).shape == (3, 1)
