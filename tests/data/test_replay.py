import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lookact.data.pictures import decode_picture, encode_jpeg
from lookact.data.replay import Replay
from lookact.errors import DataError


def filled(capacity, steps, *, frames=False, episode=7, truncate=True):
    """A ring in which step i holds state (i, 1), action (-i,), next state (i + 1, 1), score 10 i and a frame of i."""
    shape = (4, 5, 3) if frames else None
    replay = Replay(capacity=capacity, state_size=2, action_size=1, frame_shape=shape)
    for i in range(steps):
        last = (i + 1) % episode == 0
        frame = np.full((4, 5, 3), i % 256, np.uint8) if frames else None
        replay.add(
            np.array([i, 1.0]), np.array([-i]), 0.5, np.array([i + 1, 1.0]),
            terminated=last and not truncate, truncated=last and truncate, frame=frame, score=10 * i,
        )  # fmt: skip
    return replay


def steps_in(replay):
    """The step that each filled slot holds."""
    return replay.slots(np.arange(len(replay))).states[:, 0].astype(int)


@settings(max_examples=50)
@given(capacity=st.integers(1, 40), steps=st.integers(0, 130), chunk=st.integers(1, 50))
def test_relabel_reaches_every_slot_also_after_the_ring_has_wrapped(capacity, steps, chunk):
    replay = filled(capacity, steps, frames=True)
    replay.relabel(lambda slots: 3 * slots.states[:, 0] - slots.actions[:, 0] + slots.frames[:, 0, 0, 0], chunk=chunk)
    expected = {step: 4 * step + step % 256 for step in range(max(0, steps - capacity), steps)}
    assert dict(zip(steps_in(replay).tolist(), replay.rewards.tolist())) == expected


def test_relabel_touches_nothing_but_rewards():
    replay = filled(5, 13, frames=True)
    before = replay.slots(np.arange(5))
    replay.relabel(lambda slots: np.zeros(len(slots.states)))
    after = replay.slots(np.arange(5))
    for name in ("states", "actions", "next_states", "frames", "scores"):
        assert np.array_equal(getattr(before, name), getattr(after, name))


def test_relabel_refuses_rewards_of_another_shape():
    with pytest.raises(DataError, match=r"\(5, 1\) for 5 slots"):
        filled(5, 5).relabel(lambda slots: np.zeros((len(slots.states), 1)))


@settings(max_examples=50)
@given(capacity=st.integers(1, 30), steps=st.integers(0, 80), length=st.integers(1, 8), episode=st.integers(1, 9))
def test_segments_are_consecutive_steps_of_one_episode_and_none_is_missing(capacity, steps, length, episode):
    replay = filled(capacity, steps, episode=episode)
    held = steps_in(replay)
    found = held[replay.segments(replay.segment_starts(length), length)]
    for segment in found:
        assert np.array_equal(segment, segment[0] + np.arange(length))
        assert segment[0] // episode == segment[-1] // episode
    oldest = max(0, steps - capacity)
    possible = [s for s in range(oldest, steps - length + 1) if s // episode == (s + length - 1) // episode]
    assert [segment[0] for segment in found] == possible


def test_truncation_is_told_apart_from_termination():
    cut, done = filled(20, 14), filled(20, 14, truncate=False)
    assert cut.ends.tolist() == done.ends.tolist() == ([False] * 6 + [True]) * 2
    generator = torch.Generator().manual_seed(0)
    assert not cut.sample(200, generator).terminated.any()
    batch = done.sample(200, generator)
    assert torch.equal(batch.terminated, (batch.states[:, 0] + 1) % 7 == 0)


def test_a_batch_holds_whole_transitions():
    batch = filled(9, 30).sample(64, torch.Generator().manual_seed(1))
    step = batch.states[:, 0]
    assert step.min() >= 21
    assert torch.equal(batch.next_states[:, 0], step + 1)
    assert torch.equal(batch.states, torch.stack([step, torch.ones(64)], dim=1))
    assert torch.equal(batch.actions, -step[:, None])
    assert torch.equal(batch.rewards, torch.full((64,), 0.5))


def test_every_slot_is_drawn_about_equally_often():
    batch = filled(8, 20).sample(8000, torch.Generator().manual_seed(2))
    counts = batch.states[:, 0].int().bincount()[12:]
    assert len(counts) == 8
    # 5 deviations of a binomial with p = 1/8
    assert (counts - 1000).abs().max() < 5 * (8000 * 7 / 64) ** 0.5


def test_sampling_depends_on_the_generator_alone():
    replay = filled(9, 30)
    torch.manual_seed(5)
    first = replay.sample(16, torch.Generator().manual_seed(3))
    torch.manual_seed(6)
    again = replay.sample(16, torch.Generator().manual_seed(3))
    assert torch.equal(first.states, again.states)


def test_memory_is_stated_and_does_not_grow():
    replay = Replay(capacity=100, state_size=39, action_size=4, frame_shape=(16, 12, 3))
    # 39 + 4 + 39 + reward, terminated, truncated, score, at 4 bytes; 576 bytes of pixels
    assert replay.nbytes == 100 * (86 * 4 + 576)
    assert filled(10, 3).nbytes == filled(10, 500).nbytes


@pytest.mark.parametrize(("steps", "frames"), [(0, False), (4, True), (10, False), (23, True)])
def test_a_written_replay_goes_on_bit_for_bit(tmp_path, steps, frames):
    replay = filled(10, steps, frames=frames)
    replay.relabel(lambda slots: slots.states[:, 0] / 3)
    replay.write(tmp_path / "replay")
    other = filled(10, 17, frames=frames)
    other.read(tmp_path / "replay")
    for each in (replay, other):
        frame = np.full((4, 5, 3), 255, np.uint8) if frames else None
        each.add(np.array([-1, 1]), np.zeros(1), 9.0, np.zeros(2), terminated=False, truncated=False, frame=frame)
    ours, theirs = replay.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert len(other) == min(10, steps + 1)


def test_a_replay_of_another_shape_is_refused(tmp_path):
    filled(10, 4).write(tmp_path)
    with pytest.raises(DataError, match="another run"):
        Replay(capacity=10, state_size=3, action_size=1).read(tmp_path)
    with pytest.raises(DataError, match="another run"):
        filled(10, 4, frames=True).read(tmp_path)
    with pytest.raises(DataError, match="another run"):
        Replay(capacity=3, state_size=2, action_size=1).read(tmp_path)
    with pytest.raises(DataError, match=r"no replay\.safetensors"):
        filled(10, 4).read(tmp_path / "elsewhere")


def test_frames_come_with_every_transition_or_with_none():
    replay = filled(3, 1, frames=True)
    with pytest.raises(DataError, match="with frames"):
        replay.add(np.zeros(2), np.zeros(1), 0.0, np.zeros(2), terminated=False, truncated=False)


def test_an_empty_replay_cannot_be_learned_from():
    with pytest.raises(DataError, match="empty"):
        filled(3, 0).sample(1, torch.Generator())


def test_pictures_are_kept_beside_small_frames_and_come_back_from_a_checkpoint(tmp_path):
    replays = [Replay(capacity=3, state_size=1, action_size=1, frame_shape=(8, 8, 3), pictures=True) for _ in range(2)]
    image = np.zeros((32, 32, 3), np.uint8)
    image[:, 16:] = 200
    for step in range(4):
        frame, picture = replays[0].images(np.full_like(image, 40 * step) if step < 3 else image)
        replays[0].add([step], [0], 0.0, [step], False, False, frame=frame, picture=picture)
    replays[0].write(tmp_path)
    replays[1].read(tmp_path)
    for replay in replays:
        # the fourth stands in the first slot; each pixel of its frame is the mean of 16
        assert replay.slots(np.array([0])).frames[0, :, :, 0].tolist() == [[0] * 4 + [200] * 4] * 8
        pictures = [decode_picture(file) for file in replay.pictures(np.array([0, 1]))]
        assert np.abs(pictures[0].astype(int) - image).max() <= 2
        assert pictures[1].shape == (32, 32, 3)
        assert pictures[1].mean() == 40
    assert replays[0].pictures(np.arange(3)) == replays[1].pictures(np.arange(3))
    assert len(encode_jpeg(image)) < 32 * 32 * 3
    with pytest.raises(DataError, match="pictures needs one"):
        replays[0].add([0], [0], 0.0, [0], False, False, frame=frame)
    with pytest.raises(DataError, match="another run"):
        Replay(capacity=3, state_size=1, action_size=1, frame_shape=(8, 8, 3)).read(tmp_path)
