import pytest
import torch
from torch.distributions import Independent, Normal

from lookact.batch import ActorCriticOutput, ControlInputs
from lookact.errors import ConfigError
from lookact.models.actor_critic import FrozenPolicy, ValueHead, draw, score
from state_policy import StatePolicy

MEAN = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0))
LOG_STD = torch.tensor([0.1, -0.3, -1.0])
OUTPUT = ActorCriticOutput(MEAN, LOG_STD, torch.arange(5.0), None)
NORMAL = Independent(Normal(MEAN[:, 0], LOG_STD.exp()), 1)


def test_what_was_drawn_scores_as_drawn():
    actions, logprobs, values = draw(OUTPUT, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(logprobs, NORMAL.log_prob(actions))
    scores = score(OUTPUT, actions)
    assert torch.equal(scores.logprobs[:, 0], logprobs)
    assert torch.equal(scores.values[:, 0], values)
    torch.testing.assert_close(scores.entropy[:, 0], NORMAL.entropy())


def test_the_greedy_action_is_the_first_of_the_chunk():
    actions, _, _ = draw(OUTPUT, generator=None, greedy=True)
    assert torch.equal(actions, MEAN[:, 0])
    assert not torch.equal(draw(OUTPUT, generator=torch.Generator().manual_seed(1))[0], actions)


def inputs(rows=5):
    state = torch.randn(rows, 4, generator=torch.Generator().manual_seed(1))
    nothing = torch.zeros(rows, 0, dtype=torch.long)
    return ControlInputs(torch.ones(rows, 2), state, {}, nothing, torch.zeros(rows, 0, 2))


def policy():
    return StatePolicy(4, 2, seed=3)


def test_a_frozen_copy_stays_while_the_policy_moves_and_can_be_restored():
    mlp, shown = policy(), inputs()
    frozen, before = FrozenPolicy(mlp), mlp(shown)
    with torch.no_grad():
        for parameter in mlp.parameters():
            parameter.add_(0.1)
    mlp.set_statistics(torch.ones(4), torch.full((4,), 3.0))
    torch.testing.assert_close(frozen(shown).mean, before.mean)
    assert not torch.equal(mlp(shown).mean, before.mean)
    later = FrozenPolicy(mlp)
    later.load_state_dict(frozen.state_dict())
    assert torch.equal(later(shown).mean, before.mean)
    assert frozen(shown).mean.requires_grad is False


def test_other_weights_are_refused():
    frozen = FrozenPolicy(policy())
    with pytest.raises(ConfigError, match=r"differs in actor_net\.0\.bias"):
        frozen.load_state_dict({name: x for name, x in frozen.state_dict().items() if name != "actor_net.0.bias"})


def test_values_are_zero_until_trained_and_the_policy_gets_no_push() -> None:
    states = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for head in (ValueHead(8), ValueHead(8, hidden=4)):
        values = head(states)
        assert values.shape == (2, 3)
        assert not values.any()
        (gradient,) = torch.autograd.grad((values - 1).square().sum(), states)
        assert not gradient.any()


def test_the_head_works_in_its_own_precision() -> None:
    assert ValueHead(8)(torch.ones(3, 8, dtype=torch.bfloat16)).dtype == torch.float32
