import pytest
import torch

from lookact.errors import DataError
from lookact.models.world_model.layers import Expert, Memory, SharedAttention, attention_mask, reset_rows


def make():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return SharedAttention(16, 2, 2)


def tokens(length, seed):
    return torch.randn(3, length, 16, generator=torch.Generator().manual_seed(seed))


def test_a_mask_by_hand():
    mask = attention_mask([(2, [0]), (1, [0, 1])])
    assert mask.tolist() == [[True, True, False], [True, True, False], [True, True, True]]


def test_who_may_not_look_is_not_touched_and_who_may_is():
    attention = make()
    mask = attention_mask([(2, [0]), (3, [0, 1])])
    one, other = tokens(2, 0), tokens(2, 1)
    drawn, queries = tokens(3, 2), tokens(3, 3)
    seen = attention([("understanding", one), ("generation", drawn)], mask)
    again = attention([("understanding", one), ("generation", queries)], mask)
    torch.testing.assert_close(seen[0], again[0])
    changed = attention([("understanding", other), ("generation", drawn)], mask)
    assert not torch.allclose(seen[1], changed[1])


def test_experts_have_weights_of_their_own():
    attention = make()
    mask = attention_mask([(2, [0])])
    x = tokens(2, 0)
    assert not torch.allclose(attention([("action", x)], mask)[0], attention([("generation", x)], mask)[0])


def test_two_parts_of_one_expert_are_as_one():
    attention = make()
    x, mask = tokens(4, 0), attention_mask([(4, [0])])
    whole = attention([("generation", x)], mask)[0]
    parts = attention([("generation", x[:, :1]), ("generation", x[:, 1:])], mask)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


def test_an_expert_splits_its_width_into_heads():
    query, key, value = Expert(16, 4).project(tokens(5, 0))
    assert query.shape == key.shape == value.shape == (3, 4, 5, 4)


def make_memory(**options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Memory(3, 5, 2, **options)


def inputs(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def test_an_episode_starts_with_zeros():
    assert make_memory().initial(4).shape == (2, 4, 5)
    assert not make_memory().initial(4).any()


@pytest.mark.parametrize("carry", [None, torch.zeros(2, 3, 5), torch.zeros(1, 4, 5)])
def test_a_state_that_is_none_or_of_another_shape_is_refused(carry):
    with pytest.raises(DataError, match=r"memory .* Memory.initial"):
        make_memory()(inputs(4, 2, 3), carry)


def test_two_halves_are_the_whole():
    memory, x = make_memory(), inputs(4, 6, 3)
    whole, end = memory(x, memory.initial(4))
    first, carry = memory(x[:, :2], memory.initial(4))
    second, after = memory(x[:, 2:], carry)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    torch.testing.assert_close(after, end)


def test_a_row_that_begins_anew_forgets_and_the_others_do_not():
    memory, x = make_memory(), inputs(3, 5, 3)
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
    memory = make_memory()
    windows = [inputs(2, 4, 3).requires_grad_(), inputs(2, 4, 3).requires_grad_()]
    _, carry = memory(windows[0], memory.initial(2))
    seen, _ = memory(windows[1], carry.detach())
    seen[:, -1].sum().backward()
    assert windows[1].grad[:, 0].abs().min() > 0
    assert windows[0].grad is None


def test_without_backprop_nothing_is_learned_through_memory():
    memory = make_memory(backprop=False)
    x = inputs(2, 4, 3).requires_grad_()
    seen, carry = memory(x, memory.initial(2))
    assert not seen.requires_grad
    assert not carry.requires_grad
