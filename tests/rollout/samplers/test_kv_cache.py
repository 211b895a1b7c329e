import torch

from lookact.rollout.samplers.kv_cache import TurnCache


def append(cache, blocks, layers=2):
    """Feed blocks (b, heads, n, d) and keep what they add up to."""
    held = None
    for block in blocks:
        for layer in range(layers):
            keys, values = cache.update(block + layer, -block - layer, layer)
            wanted = block if held is None else torch.cat([held, block], dim=2)
            assert torch.equal(keys, wanted + layer)
            assert torch.equal(values, -wanted - layer)
        cache.advance(block.shape[2])
        held = wanted
        assert cache.get_seq_length() == held.shape[2]
    return held


def blocks(b, *lengths):
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(0, 1000, (b, 2, n, 4), generator=generator).float() for n in lengths]


def test_what_was_appended_comes_back_across_growth():
    append(TurnCache(), blocks(3, 5, 1, 1, 200, 1, 400, 1))


def test_appending_writes_in_place_until_the_buffer_is_full():
    cache = TurnCache()
    first, second, third = blocks(1, 5, 7, 500)
    addresses = []
    for block in (first, second, third):
        keys, _ = cache.update(block, block, 0)
        cache.advance(block.shape[2])
        addresses.append(keys.data_ptr())
    assert addresses[0] == addresses[1] != addresses[2]


def test_rows_can_be_dropped_and_reordered_between_turns():
    cache = TurnCache()
    held = append(cache, blocks(4, 6))
    cache.select(torch.tensor([3, 1]))
    (more,) = blocks(2, 3)
    keys, values = cache.update(more, more, 0)
    assert torch.equal(keys, torch.cat([held[[3, 1]], more], dim=2))
    assert torch.equal(values, torch.cat([-held[[3, 1]], more], dim=2))
