import math

import torch

from lookact.models.sac import SAC, SquashedActor


def make(seed=0, **changes):
    return SAC(3, 2, hidden=(16, 16), generator=torch.Generator().manual_seed(seed), **changes)


def test_actions_are_bounded_and_follow_the_noise():
    actor = make().actor
    states = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    noise = torch.randn(50, 2, generator=torch.Generator().manual_seed(2))
    actions, _ = actor.sample(states, noise)
    assert actions.abs().max() < 1
    assert torch.allclose(actor.act(states, noise), actions)
    assert torch.allclose(actor.act(states), actor.sample(states, torch.zeros(50, 2))[0])


def test_the_density_of_actions_integrates_to_one():
    actor = SquashedActor(1, 1, (8,), torch.Generator().manual_seed(3))
    state = torch.tensor([[0.7]])
    mean, log_std = actor(state)
    edges = torch.linspace(-0.9999, 0.9999, 20001)[:, None]
    noise = (edges.atanh() - mean) / log_std.exp()
    _, logprobs = actor.sample(state.expand(len(edges), 1), noise)
    assert abs(torch.trapezoid(logprobs.exp(), edges[:, 0]).item() - 1) < 1e-3


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
