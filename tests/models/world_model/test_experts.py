import torch

from lookact.models.world_model.experts import Expert, SharedAttention, attention_mask


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
