import math

import torch

from lookact.models.sac import SAC


def make(seed=0, **changes):
    return SAC(3, 2, hidden=(16, 16), generator=torch.Generator().manual_seed(seed), **changes)


def test_targets_begin_as_the_critics_and_have_no_gradient():
    sac = make()
    for critic, target in zip(sac.critics.parameters(), sac.targets.parameters()):
        assert torch.equal(critic, target)
        assert critic.requires_grad
        assert not target.requires_grad
    assert math.isclose(sac.log_alpha.exp().item(), 0.1, rel_tol=1e-6)


def test_a_reset_forgets_the_critics_and_leaves_the_actor():
    sac, before = make(), make()
    sac.reset_critics(torch.Generator().manual_seed(9))
    assert torch.equal(sac.actor.network.flat, before.actor.network.flat)
    assert not torch.equal(sac.critics.flat, before.critics.flat)
    assert torch.equal(sac.critics.flat, sac.targets.flat)


def test_an_agent_acts_on_raw_states_as_its_actor_does_on_standardised_ones():
    sac = SAC(3, 2, hidden=(16,), generator=torch.Generator().manual_seed(0))
    states = 30.0 + 10.0 * torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(sac.act(states), sac.actor.act(states))
    sac.standardise.look_over(states)
    assert torch.equal(sac.act(states), sac.actor.act(sac.standardise(states)))
    assert not torch.allclose(sac.act(states), sac.actor.act(states))
