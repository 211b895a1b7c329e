import dataclasses

import numpy as np
import pytest
import torch

from lookact.algorithms.vlm import script_of
from lookact.data.collate import collate
from lookact.data.demos import Demo, demo_episode
from lookact.data.segments import cut
from lookact.types import Observation

RNG = np.random.default_rng(0)


def picture(height, width):
    return RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)


def told(*sizes_by_turn):
    """A conversation with pictures of these sizes in each turn."""
    seen = tuple(
        Observation(text="Go." * (1 + i), images={f"camera{j}": picture(*size) for j, size in enumerate(sizes)})
        for i, sizes in enumerate(sizes_by_turn)
    )
    replies = tuple(f"Then {i}." * (1 + i) for i in range(len(seen)))
    return Demo(seen, replies, (True,) * len(seen))


ROWS = (
    told([(64, 64)], [(64, 64), (64, 64)], []),
    told([]),
    told([(32, 96)]),
    told([(64, 64)], [(96, 32), (64, 64)]),
)


@pytest.fixture
def segments(chat):
    return [cut(demo_episode(row, script_of(chat), name="d"))[0] for row in ROWS]


def test_padding_is_marked_in_every_tensor(chat, segments):
    batch = collate(segments, chat.encode_images, pad_id=7)
    for row, segment in enumerate(segments):
        n, u = len(segment.ids), len(segment.mask)
        assert batch.inputs.ids[row, :n].tolist() == segment.ids.tolist()
        assert (batch.inputs.ids[row, n:] == 7).all()
        assert batch.inputs.attend[row].tolist() == [True] * n + [False] * (batch.inputs.ids.shape[1] - n)
        assert batch.inputs.positions[row, :u].tolist() == segment.positions.tolist()
        assert not batch.inputs.positions[row, u:].any()
        assert not batch.mask[row, u:].any()
        assert (batch.turns[row, u:] == -1).all()
        assert not batch.advantages[row, u:].any()
    assert (batch.mask.dtype, batch.logprobs.dtype, batch.turns.dtype) == (torch.bool, torch.float32, torch.int64)


def test_every_row_gets_its_own_pixels(chat, segments):
    together = collate(segments, chat.encode_images).inputs
    for row, segment in enumerate(segments):
        alone = collate([segment], chat.encode_images).inputs
        assert torch.equal(together.pixels[row], alone.pixels[0])
        assert torch.equal(together.grids[row], alone.grids[0])
    assert [len(grids) for grids in together.grids] == [3, 0, 1, 3]
    assert together.grids[3].tolist() == [[1, 4, 4], [1, 6, 2], [1, 4, 4]]


@torch.no_grad()
def test_padding_does_not_leak(chat, segments):
    together = chat.evaluate(collate(segments, chat.encode_images).inputs)
    for row, segment in enumerate(segments):
        alone = chat.evaluate(collate([segment], chat.encode_images).inputs)
        u = len(segment.mask)
        torch.testing.assert_close(together.logprobs[row, :u], alone.logprobs[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(together.entropy[row, :u], alone.entropy[0], atol=1e-5, rtol=1e-5)
        assert not together.logprobs[row, u:].any()


@torch.no_grad()
def test_whatever_stands_on_padding_changes_nothing(chat, segments):
    scores = [chat.evaluate(collate(segments, chat.encode_images, pad_id=pad).inputs) for pad in (0, 123)]
    assert torch.equal(scores[0].logprobs, scores[1].logprobs)


def test_units_rewards_and_returns_keep_their_rows(chat, segments):
    paid = [
        dataclasses.replace(s, group=i, episode_return=i / 2, terminated=bool(i % 2)) for i, s in enumerate(segments)
    ]
    batch = collate(paid, chat.encode_images)
    assert batch.groups.tolist() == [0, 1, 2, 3]
    assert batch.returns.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert batch.terminated.tolist() == [False, True, False, True]
