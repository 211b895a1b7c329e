import dataclasses
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookact.algorithms.vlm import template_of
from lookact.data.demonstrations import demo_episode
from lookact.data.packing import RowPixels, buckets, collate, to_segments
from lookact.errors import DataError
from lookact.types import Decision, Demonstration, Episode, Observation, Turn


def turn(prompt, reply, *, mask, reward=0.0, fresh=False, method="brace_depth", images=1, terminated=False, shade=0):
    picture = np.full((32, 32, 3), shade, np.uint8)
    decision = Decision(
        action="",
        logprobs=-np.arange(1, len(reply) + 1, dtype=np.float32),
        mask=np.array(mask, dtype=bool),
        token_ids=np.array(reply),
        prompt_ids=np.array(prompt),
        fresh=fresh,
        mask_method=method,
    )
    seen = Observation(images={f"camera{i}": picture + np.uint8(i) for i in range(images)})
    return Turn(seen, decision, reward, terminated, False)


def episode(*turns):
    return Episode(id="e", group=3, seed=0, turns=turns)


WALK = episode(
    turn([1, 2, 3], [10, 11, 12], mask=[0, 1, 1], reward=0.5, fresh=True, images=2),
    turn([4], [13, 14, 16], mask=[1, 0, 0], shade=9),
    turn([5, 6], [15], mask=[1], reward=2.0, terminated=True, shade=20),
)


def test_an_episode_is_one_stream_of_what_was_fed_and_sampled():
    (segment,) = to_segments(WALK)
    assert segment.ids.tolist() == [1, 2, 3, 10, 11, 12, 4, 13, 14, 16, 5, 6, 15]
    assert segment.ids[segment.positions].tolist() == [10, 11, 12, 13, 14, 16, 15]
    # the token that ends the second reply counts with its action
    assert segment.mask.tolist() == [False, True, True, True, False, True, True]
    assert segment.turns.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert segment.logprobs.tolist() == [-1, -2, -3, -1, -2, -3, -1]
    assert [int(image[0, 0, 0]) for image in segment.images] == [0, 1, 9, 20]
    assert (segment.episode_return, segment.group, segment.terminated) == (2.5, 3, True)
    assert segment.advantages.tolist() == [0.0] * 7


def test_a_turns_reward_stands_on_its_last_unit():
    assert to_segments(WALK)[0].rewards.tolist() == [0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 2.0]


def test_a_rebuilt_context_starts_a_segment_of_its_own():
    rebuilt = episode(
        turn([1], [10], mask=[1], fresh=True, reward=1.0),
        turn([2, 3], [11, 12], mask=[1, 1], fresh=True, reward=2.0),
        turn([4], [13], mask=[1], reward=4.0, terminated=True),
    )
    first, second = to_segments(rebuilt)
    assert (first.ids.tolist(), second.ids.tolist()) == ([1, 10], [2, 3, 11, 12, 4, 13])
    assert second.ids[second.positions].tolist() == [11, 12, 13]
    assert second.turns.tolist() == [0, 0, 1]
    # both are judged by the whole episode; only the last one ends it
    assert (first.episode_return, second.episode_return) == (7.0, 7.0)
    assert (first.terminated, second.terminated) == (False, True)
    assert (len(first.images), len(second.images)) == (1, 2)


def test_where_no_action_was_found_the_whole_reply_counts():
    lost = episode(turn([1], [10, 11], mask=[0, 0], method="failed", fresh=True), turn([2], [12, 13], mask=[0, 1]))
    assert to_segments(lost)[0].mask.tolist() == [True, True, False, True]


def test_a_reply_that_nobody_stands_by_is_seen_and_not_learned():
    noisy = episode(turn([1], [10, 11], mask=[0, 0], method="", fresh=True), turn([2], [12], mask=[1], method=""))
    (segment,) = to_segments(noisy)
    assert segment.ids.tolist() == [1, 10, 11, 2, 12]
    assert segment.mask.tolist() == [False, False, True]


def test_units_may_be_all_that_was_sampled():
    assert to_segments(WALK, loss_on="reply")[0].mask.all()
    with pytest.raises(DataError, match="'action' or 'reply'"):
        to_segments(WALK, loss_on="prompt")


def test_an_episode_without_turns_has_no_segment():
    assert to_segments(episode()) == []


def test_an_episode_of_a_control_policy_is_refused():
    blank = np.zeros(1, np.float32)
    steer = Turn(Observation(), Decision(blank, blank, blank > 0), 0.0, True, False)
    with pytest.raises(DataError, match="no token ids"):
        to_segments(episode(steer))


@given(st.lists(st.integers(1, 50)), st.integers(1, 120))
def test_buckets_hold_every_row_once_within_the_budget(lengths, budget):
    groups = buckets(lengths, budget=budget)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        width = max(lengths[index] for index in group)
        assert len(group) == 1 or width * len(group) <= budget


def test_buckets_put_rows_of_like_length_together():
    assert buckets([3, 10, 4, 9, 50], budget=20) == [[4], [1, 3], [2, 0]]


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
    return Demonstration(seen, replies, (True,) * len(seen))


ROWS = (
    told([(64, 64)], [(64, 64), (64, 64)], []),
    told([]),
    told([(32, 96)]),
    told([(64, 64)], [(96, 32), (64, 64)]),
)


@pytest.fixture
def segments(chat):
    return [to_segments(demo_episode(row, template_of(chat), name="d"))[0] for row in ROWS]


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


def test_a_batch_for_another_process_carries_pixels_and_no_model():
    def encode(images):
        return torch.tensor([[float(image.sum())] for image in images]), torch.ones(len(images), 3, dtype=torch.long)

    rows = RowPixels(((np.ones((1, 2, 3), np.uint8),), ()), encode)
    first, second = pickle.loads(pickle.dumps(rows))
    assert (first.tolist(), second.tolist()) == ([[6.0]], [])


def test_images_stay_bytes_until_their_pixels_are_asked_for(chat, segments):
    batch = collate(segments, chat.encode_images)
    held = [image for row in batch.inputs.pixels.images for image in row]
    assert all(image.dtype == np.uint8 for image in held)
    # the episodes' own arrays, not copies
    assert all(a is b for a, b in zip(held, (image for segment in segments for image in segment.images), strict=True))
    at_once, grids = chat.encode_images(held)
    assert torch.equal(torch.cat(list(batch.inputs.pixels)), at_once)
    assert torch.equal(torch.cat(batch.inputs.grids), grids)


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
