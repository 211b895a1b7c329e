import torch

from lookact.models.standardise import FINEST, FURTHEST, Standardise


def test_states_are_left_as_they_are_until_some_were_looked_over():
    states = torch.tensor([[1e6, -3.0]])
    assert torch.equal(Standardise(2)(states), states)


def test_states_that_were_looked_over_have_mean_zero_and_spread_one():
    standardise = Standardise(2)
    states = torch.tensor([[1.0, 40.0], [3.0, 80.0]])
    standardise.look_over(states)
    assert torch.allclose(standardise(states), torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))


def test_a_number_that_never_changed_is_centred_only_and_one_that_hardly_did_is_not_blown_up():
    standardise = Standardise(2)
    standardise.look_over(torch.tensor([[5.0, 0.001], [5.0, -0.001]]))
    told = standardise(torch.tensor([[5.5, FINEST]]))
    assert torch.allclose(told, torch.tensor([[0.5, 1.0]]))


def test_what_is_far_out_is_clipped():
    standardise = Standardise(1)
    standardise.look_over(torch.tensor([[-1.0], [1.0]]))
    assert standardise(torch.tensor([[1e9], [-1e9]])).flatten().tolist() == [FURTHEST, -FURTHEST]


def test_the_scale_is_kept_with_the_weights():
    one, other = Standardise(1), Standardise(1)
    one.look_over(torch.tensor([[2.0], [6.0]]))
    other.load_state_dict(one.state_dict())
    assert other(torch.tensor([[6.0]])).item() == 1.0
