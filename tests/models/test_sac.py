import math

import torch
from torch.nn.utils import parameters_to_vector

from lookact.models.sac import SAC


def make(seed=0, **changes):
    return SAC(3, 2, hidden=(16, 16), generator=torch.Generator().manual_seed(seed), **changes)


def weights_of(module):
    return parameters_to_vector(module.parameters())


def test_targets_begin_as_the_critics_and_have_no_gradient():
    sac = make()
    for critic, target in zip(sac.critics.parameters(), sac.target_critics.parameters()):
        assert torch.equal(critic, target)
        assert critic.requires_grad
        assert not target.requires_grad
    assert math.isclose(sac.log_alpha.exp().item(), 0.1, rel_tol=1e-6)


def test_a_reset_forgets_the_critics_and_leaves_the_actor():
    sac, before = make(), make()
    sac.reset_critics(torch.Generator().manual_seed(9))
    assert torch.equal(weights_of(sac.actor), weights_of(before.actor))
    assert not torch.equal(weights_of(sac.critics), weights_of(before.critics))
    assert torch.equal(weights_of(sac.critics), weights_of(sac.target_critics))


def test_an_agent_acts_on_raw_states_as_its_actor_does_on_standardised_ones():
    sac = SAC(3, 2, hidden=(16,), generator=torch.Generator().manual_seed(0))
    states = 30.0 + 10.0 * torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(sac.act(states), sac.actor.act(states))
    sac.standardise.look_over(states)
    assert torch.equal(sac.act(states), sac.actor.act(sac.standardise(states)))
    assert not torch.allclose(sac.act(states), sac.actor.act(states))


def test_a_critic_reads_states_and_actions_side_by_side():
    sac = make()
    states, actions = torch.randn(5, 3), torch.randn(5, 2)
    q = sac.critics(states, actions)
    assert q.shape == (2, 5)
    assert torch.equal(q, sac.critics.network(torch.cat([states, actions], dim=1))[..., 0])
