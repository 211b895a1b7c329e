import pytest
import torch

from lookact.batch import ControlInputs
from lookact.errors import ConfigError
from lookact.models.control_reference import FrozenControl
from state_policy import StatePolicy


def inputs(rows=5):
    state = torch.randn(rows, 4, generator=torch.Generator().manual_seed(1))
    nothing = torch.zeros(rows, 0, dtype=torch.long)
    return ControlInputs(torch.ones(rows, 2), state, {}, nothing, torch.zeros(rows, 0, 2))


def policy():
    return StatePolicy(4, 2, seed=3)


def test_a_frozen_copy_stays_while_the_policy_moves_and_can_be_restored():
    mlp, shown = policy(), inputs()
    frozen, before = FrozenControl(mlp), mlp(shown)
    with torch.no_grad():
        for parameter in mlp.parameters():
            parameter.add_(0.1)
    mlp.set_statistics(torch.ones(4), torch.full((4,), 3.0))
    torch.testing.assert_close(frozen(shown).mean, before.mean)
    assert not torch.equal(mlp(shown).mean, before.mean)
    later = FrozenControl(mlp)
    later.load_state_dict(frozen.state_dict())
    assert torch.equal(later(shown).mean, before.mean)
    assert frozen(shown).mean.requires_grad is False


def test_other_weights_are_refused():
    frozen = FrozenControl(policy())
    with pytest.raises(ConfigError, match=r"differs in actor\.0\.bias"):
        frozen.load_state_dict({name: x for name, x in frozen.state_dict().items() if name != "actor.0.bias"})
