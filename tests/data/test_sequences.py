import numpy as np
import pytest
import torch

from lookact.data.sequences import Recording, SequenceReplay, TokenSequences, concat, load_recording, stack_history
from lookact.errors import DataError
from lookact.seeding import numpy_rng


def recording(rows=2, steps=3):
    rng = numpy_rng(0, "recording")
    frames = rng.integers(0, 255, (2, rows, steps + 1, 8, 8, 3), np.uint8)
    state = rng.normal(size=(rows, steps + 1, 3)).astype(np.float32)
    actions = rng.uniform(-1, 1, (rows, steps, 2)).astype(np.float32)
    texts = np.array(["reach the cube", "push"])
    return Recording(frames[0], frames[1], state, actions, texts, np.ones((rows, steps), np.bool_))


def sequences(rows, first=0):
    numbers = torch.arange(first, first + rows)
    ids = numbers[:, None, None].expand(-1, 4, 5).to(torch.int16)
    return TokenSequences(
        wrist=ids,
        head=ids,
        head_seen=torch.ones(rows, dtype=torch.bool),
        state=torch.zeros(rows, 4, 3),
        actions=torch.zeros(rows, 3, 2),
        text_ids=torch.zeros(rows, 4, dtype=torch.long),
        mask=torch.ones(rows, 3, dtype=torch.bool),
    )


def test_a_recording_is_read_back_as_it_was(tmp_path):
    made = recording()
    made.save(tmp_path / "deep" / "one.npz")
    read = load_recording(tmp_path / "deep" / "one.npz")
    for name in ("wrist", "head", "state", "actions", "texts", "mask"):
        assert np.array_equal(getattr(read, name), getattr(made, name))
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["one.npz"]


def test_a_recording_of_version_0_1_is_read(tmp_path):
    made = recording()
    parts = {name: getattr(made, name) for name in ("wrist", "head", "state", "actions", "texts")}
    np.savez(tmp_path / "old.npz", counts=made.mask, **parts)
    assert np.array_equal(load_recording(tmp_path / "old.npz").mask, made.mask)


def test_a_torn_recording_is_refused(tmp_path):
    (tmp_path / "torn.npz").write_bytes(b"PK\x03\x04torn")
    with pytest.raises(DataError, match="no whole recording"):
        load_recording(tmp_path / "torn.npz")


@pytest.mark.parametrize("stride", [1, 2])
def test_pairs_are_the_last_frames_each_with_the_action_taken_on_it(stride):
    made = recording(rows=1, steps=7)
    frames, actions = torch.from_numpy(made.wrist), torch.from_numpy(made.actions)
    seen, done = stack_history(frames, actions, torch.arange(7), length=3, stride=stride)
    nothing = np.zeros_like(made.actions[0, 0])
    for t in range(7):
        for place, step in enumerate((t - 2 * stride, t - stride, t)):
            assert np.array_equal(seen[0, t, place].numpy(), made.wrist[0, max(step, 0)])
            assert np.array_equal(done[0, t, place].numpy(), made.actions[0, step] if step >= 0 else nothing)


def test_a_replay_keeps_the_newest_and_goes_on_where_it_was():
    replay = SequenceReplay(2)
    for first in (0, 10, 20):
        replay.add(sequences(2, first))
    assert replay.all().wrist[:, 0, 0].tolist() == [10, 11, 20, 21]
    again = SequenceReplay(2)
    again.load_state_dict(replay.state_dict())
    assert again.all().wrist.equal(replay.all().wrist)


def test_an_empty_replay_has_nothing_to_give():
    with pytest.raises(DataError, match="add sequences first"):
        SequenceReplay(1).all()


def test_rows_are_picked_and_joined():
    joined = concat([sequences(2), sequences(1, 7)])
    assert len(joined) == 3
    assert joined.steps == 3
    assert joined[torch.tensor([2, 0])].wrist[:, 0, 0].tolist() == [7, 0]
