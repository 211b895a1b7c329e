import pytest
import torch

from lookact.errors import DataError
from lookact.models.world_model.memory import Memory, reset_rows


def make(**options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Memory(3, 5, 2, **options)


def inputs(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def test_an_episode_starts_with_zeros():
    assert make().initial(4).shape == (2, 4, 5)
    assert not make().initial(4).any()


@pytest.mark.parametrize("carry", [None, torch.zeros(2, 3, 5), torch.zeros(1, 4, 5)])
def test_a_state_that_is_none_or_of_another_shape_is_refused(carry):
    with pytest.raises(DataError, match=r"memory .* Memory.initial"):
        make()(inputs(4, 2, 3), carry)


def test_two_halves_are_the_whole():
    memory, x = make(), inputs(4, 6, 3)
    whole, end = memory(x, memory.initial(4))
    first, carry = memory(x[:, :2], memory.initial(4))
    second, after = memory(x[:, 2:], carry)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    torch.testing.assert_close(after, end)


def test_a_row_that_begins_anew_forgets_and_the_others_do_not():
    memory, x = make(), inputs(3, 5, 3)
    starts = torch.zeros(3, 5, dtype=torch.bool)
    starts[1, 2] = True
    seen, _ = memory(x, memory.initial(3), starts)
    plain, _ = memory(x, memory.initial(3))
    alone, _ = memory(x[1:2, 2:], memory.initial(1))
    torch.testing.assert_close(seen[[0, 2]], plain[[0, 2]])
    torch.testing.assert_close(seen[1, :2], plain[1, :2])
    torch.testing.assert_close(seen[1:2, 2:], alone)
    assert not torch.allclose(seen[1, 2:], plain[1, 2:])


def test_resetting_a_row_leaves_the_others_bit_for_bit():
    carry = inputs(2, 3, 5)
    after = reset_rows(carry, torch.tensor([False, True, False]))
    assert after[:, [0, 2]].equal(carry[:, [0, 2]])
    assert not after[:, 1].any()


def test_gradients_reach_the_first_input_of_a_window_and_not_the_window_before():
    memory = make()
    windows = [inputs(2, 4, 3).requires_grad_(), inputs(2, 4, 3).requires_grad_()]
    _, carry = memory(windows[0], memory.initial(2))
    seen, _ = memory(windows[1], carry.detach())
    seen[:, -1].sum().backward()
    assert windows[1].grad[:, 0].abs().min() > 0
    assert windows[0].grad is None


def test_without_backprop_nothing_is_learned_through_memory():
    memory = make(backprop=False)
    x = inputs(2, 4, 3).requires_grad_()
    seen, carry = memory(x, memory.initial(2))
    assert not seen.requires_grad
    assert not carry.requires_grad
