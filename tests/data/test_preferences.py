import numpy as np
import pytest
import torch

from lookact.data.preferences import PreferenceStore, load_labels
from lookact.errors import DataError
from lookact.training.checkpoint import save_checkpoint


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


def make_store(length=1, folder=None):
    return PreferenceStore(capacity=16, shape=(length, 1), folder=folder)


def add_two(store, length=1):
    one = np.arange(2 * length, dtype=np.float32).reshape(2, length, 1)
    store.add(one, one + 10, [0, 1])


def test_one_label_of_many_takes_its_own_bytes_in_a_checkpoint(tmp_path):
    """A view of the memory for 20,000 pairs would be written with all of it, 15 MB here."""
    store = PreferenceStore(capacity=20_000, shape=(1, 8, 8, 3), dtype=torch.uint8)
    frames = np.random.default_rng(0).integers(256, size=(2, 1, 1, 8, 8, 3), dtype=np.uint8)
    store.add(frames[0], frames[1], [0])
    save_checkpoint(tmp_path, 1, weights={}, state={"labels": store}, metrics={}, config={})
    assert sum(file.stat().st_size for file in (tmp_path / "checkpoint-1").rglob("*")) < 50_000


def test_a_store_with_a_folder_writes_each_pair_once_and_goes_on_from_its_files(tmp_path):
    store = make_store(folder=tmp_path)
    add_two(store)
    store.add(np.zeros((1, 1, 1), np.float32), np.ones((1, 1, 1), np.float32), [-1])
    state = store.state_dict()
    assert not any(isinstance(value, torch.Tensor) for value in state.values())
    # what is added after the checkpoint is added again by the run that goes on from it
    add_two(store)
    again = make_store(folder=tmp_path)
    again.load_state_dict(state)
    assert len(again) == 2
    assert again.counts == {"pairs": 3, "kept": 2, "no_preference": 1, "identical": 0}
    add_two(again)
    assert torch.equal(again.first, store.first)
    assert torch.equal(again.labels, store.labels)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["00000.safetensors", "00001.safetensors"]


def test_a_store_whose_files_are_gone_says_so(tmp_path):
    store = make_store(folder=tmp_path)
    add_two(store)
    (tmp_path / "00000.safetensors").unlink()
    with pytest.raises(DataError, match="no labels at"):
        make_store(folder=tmp_path).load_state_dict(store.state_dict())


def test_labels_of_one_run_begin_another(tmp_path):
    store = make_store(folder=tmp_path)
    add_two(store)
    for path in (tmp_path, tmp_path / "00000.safetensors"):
        again = make_store()
        assert load_labels(again, path) == 2
        assert torch.equal(again.second, store.second)
        assert torch.equal(again.labels, store.labels)
        assert again.counts["pairs"] == 2


def test_labels_of_another_task_or_of_nowhere_are_refused(tmp_path):
    with pytest.raises(DataError, match="no labels at"):
        load_labels(make_store(), tmp_path / "nowhere")
    add_two(make_store(length=2, folder=tmp_path), length=2)
    with pytest.raises(DataError, match="another task"):
        load_labels(make_store(), tmp_path)
