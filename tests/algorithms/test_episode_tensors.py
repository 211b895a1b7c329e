import numpy as np
import torch

from lookact.algorithms.episode_tensors import lay_out, make_chunks
from lookact.data.segments import Segment


def segment(turns, *, value):
    """A unit a listed turn; its reward is `value` plus its place."""
    n = len(turns)
    return Segment(
        ids=np.arange(n + 2),
        positions=np.arange(2, n + 2),
        mask=np.ones(n, bool),
        logprobs=np.zeros(n, np.float32),
        turns=np.array(turns),
        rewards=(value + np.arange(n)).astype(np.float32),
        images=(),
        episode_return=0.0,
        group=0,
        terminated=True,
        advantages=np.zeros(n, np.float32),
    )


EPISODES = [[segment([0, 0, 1], value=10), segment([0, 1], value=20)], [segment([0], value=30)]]
SEGMENTS = [part for parts in EPISODES for part in parts]


def no_images(images):
    return torch.zeros(0, 1), torch.zeros(0, 3, dtype=torch.long)


def chunks_of(order, *, parts=2, budget=64):
    return make_chunks(SEGMENTS, order, no_images, parts=parts, token_budget=budget, device="cpu")


def test_segments_of_an_episode_follow_each_other_in_its_row():
    layout = lay_out(EPISODES)
    chunks = [chunk for minibatch in chunks_of([2, 1, 0]) for chunk in minibatch]
    rewards = layout.gather(chunks, [chunk.batch.rewards for chunk in chunks])
    assert rewards.tolist() == [[10, 11, 12, 20, 21], [30, 0, 0, 0, 0]]
    assert layout.gather_turns(chunks).tolist() == [[0, 0, 1, 2, 3], [0, -1, -1, -1, -1]]


def test_what_is_gathered_goes_back_to_where_it_was():
    layout = lay_out(EPISODES)
    chunks = [chunk for minibatch in chunks_of([1, 2, 0], parts=1) for chunk in minibatch]
    joined = layout.gather(chunks, [chunk.batch.rewards for chunk in chunks])
    for chunk in chunks:
        assert torch.equal(layout.scatter(joined, chunk), chunk.batch.rewards)


def test_every_segment_is_in_one_chunk_and_the_budget_holds():
    minibatches = chunks_of([1, 0, 2], parts=2, budget=5)
    assert sorted(n for minibatch in minibatches for chunk in minibatch for n in chunk.numbers) == [0, 1, 2]
    assert all(chunk.batch.inputs.ids.numel() <= 5 for minibatch in minibatches for chunk in minibatch)
    assert {n for chunk in minibatches[0] for n in chunk.numbers} == {0, 1}


def test_more_parts_than_segments_leave_empty_minibatches():
    assert [len(minibatch) for minibatch in chunks_of([0], parts=3)] == [1, 0, 0]
