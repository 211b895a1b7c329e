import torch

from lookact.algorithms.novelty import Novelty
from lookact.batch import ControlInputs
from lookact.rollout.vector_rollout import Rollout


def rollout_of(states, over, mask=None):
    """Steps by rows of states (t, rows, s)."""
    over = torch.tensor(over, dtype=torch.bool)
    nothing = torch.zeros(over.shape)
    inputs = ControlInputs(nothing[..., None], states, {}, nothing[..., None].long(), nothing[..., None])
    mask = torch.ones_like(over) if mask is None else torch.tensor(mask, dtype=torch.bool)
    never = torch.zeros_like(over)
    return Rollout(inputs, nothing, nothing, nothing, over, never, nothing, mask, nothing[0], ())


def test_a_step_is_paid_for_the_state_it_leads_to_but_not_across_an_end():
    states = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    novelty = Novelty(4, seed=0)
    paid = novelty.reward(rollout_of(states, [[0, 0], [0, 1], [0, 0]]))
    assert (paid[0] > 0).all()
    assert paid[1, 0] > 0
    assert (paid[1, 1], *paid[2].tolist()) == (0, 0, 0)
    # in units of the deviation of all errors so far
    other = Novelty(4, seed=0)
    other.states = novelty.states
    errors = other.error(states).detach()
    torch.testing.assert_close(paid[0], errors[1] / errors.flatten().std(correction=0), rtol=1e-4, atol=1e-5)


def test_a_step_that_did_not_happen_neither_counts_nor_is_paid_for():
    states = torch.randn(3, 1, 4, generator=torch.Generator().manual_seed(1))
    states[1] = 1e6
    novelty = Novelty(4, seed=0)
    paid = novelty.reward(rollout_of(states, [[0], [0], [0]], [[1], [0], [1]]))
    assert not paid.any()
    assert novelty.states.count == 2
    assert float(novelty.states.mean.abs().max()) < 5


def test_what_was_seen_often_is_new_no_more():
    familiar = torch.randn(8, 4, 3, generator=torch.Generator().manual_seed(2))
    novelty = Novelty(3, seed=0, lr=1e-2)
    ends = [[0] * 4] * 8
    first = novelty.error(familiar).mean()
    for _ in range(25):
        novelty.reward(rollout_of(familiar, ends))
    again, elsewhere = novelty.error(familiar).mean(), novelty.error(familiar + 2.5).mean()
    assert again < 0.1 * first
    assert elsewhere > 5 * again


def test_a_resumed_one_goes_on_alike():
    states = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(3))
    whole, other = Novelty(4, seed=0), Novelty(4, seed=0)
    whole.reward(rollout_of(states, [[0, 0]] * 3))
    other.load_state_dict(whole.state_dict())
    after = rollout_of(states + 1, [[0, 0]] * 3)
    assert torch.equal(whole.reward(after), other.reward(after))
