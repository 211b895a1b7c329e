import numpy as np
import pytest
import torch

from lookact.data.preferences import PreferenceStore, load_labels, save_labels
from lookact.errors import DataError


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
