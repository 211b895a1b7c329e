import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lookact.data.replay import PreferenceStore, Replay, load_labels, save_labels
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


def pair(value, other):
    return np.full((1, 2, 3), value, np.float32), np.full((1, 2, 3), other, np.float32)


def test_no_preference_and_identical_pairs_are_counted_and_not_kept():
    store = PreferenceStore(capacity=9, shape=(2, 3))
    for first, second, label in ((1, 2, 0), (3, 4, -1), (5, 5, 1), (6, 6, -1), (7, 8, 0.5), (9, 10, 1)):
        store.add(*pair(first, second), [label])
    assert store.first[:, 0, 0].tolist() == [1, 7, 9]
    assert store.second[:, 0, 0].tolist() == [2, 8, 10]
    assert store.labels.tolist() == [0, 0.5, 1]
    assert store.counts == {"pairs": 6, "kept": 3, "no_preference": 1, "identical": 2}


def test_the_oldest_gives_way():
    store = PreferenceStore(capacity=3, shape=(2, 3))
    for value in range(5):
        store.add(*pair(value, -1), [0])
    assert sorted(store.first[:, 0, 0].tolist()) == [2, 3, 4]
    assert len(store) == 3


def test_labels_out_of_range_are_refused():
    with pytest.raises(DataError, match="give 0 to 1"):
        PreferenceStore(capacity=3, shape=(2, 3)).add(*pair(0, 1), [2])


@pytest.mark.parametrize("count", [0, 2, 5])
def test_a_loaded_store_goes_on_as_the_other(count):
    stores = [PreferenceStore(capacity=3, shape=(1, 4, 4, 3), dtype=torch.uint8) for _ in range(2)]
    frames = np.random.default_rng(0).integers(256, size=(6, 2, 1, 4, 4, 3), dtype=np.uint8)
    stores[0].add(frames[:count, 0], frames[:count, 1], np.ones(count))
    stores[1].load_state_dict(stores[0].state_dict())
    for store in stores:
        store.add(frames[5:, 0], frames[5:, 1], [0])
    assert torch.equal(stores[0].first, stores[1].first)
    assert torch.equal(stores[0].labels, stores[1].labels)
    assert stores[0].counts == stores[1].counts


def test_a_store_of_another_shape_is_refused():
    with pytest.raises(DataError, match="another run"):
        PreferenceStore(capacity=3, shape=(1, 3)).load_state_dict(
            PreferenceStore(capacity=3, shape=(2, 3)).state_dict()
        )


def make_store(length=1):
    return PreferenceStore(capacity=16, shape=(length, 1))


def test_labels_of_one_run_begin_another(tmp_path):
    store = make_store()
    store.add(np.array([[[1.0]], [[2.0]]], np.float32), np.array([[[3.0]], [[4.0]]], np.float32), [0, 1])
    save_labels(store, tmp_path / "labels")
    again = make_store()
    assert load_labels(again, tmp_path / "labels") == 2
    assert torch.equal(again.second, store.second)
    assert torch.equal(again.labels, store.labels)
    assert again.counts["pairs"] == 2


def test_labels_of_another_task_or_of_nowhere_are_refused(tmp_path):
    with pytest.raises(DataError, match="no labels at"):
        load_labels(make_store(), tmp_path / "labels")
    save_labels(make_store(length=2), tmp_path / "labels")
    with pytest.raises(DataError, match="another task"):
        load_labels(make_store(), tmp_path / "labels")
