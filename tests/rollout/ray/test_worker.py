import pytest

from lookact.errors import EngineError, StaleWeights
from lookact.rollout.ray.worker import Dispatch
from lookact.types import Episode, EpisodeSpec

SPECS = [EpisodeSpec(id=f"p{i}", group=i // 2, seed=i) for i in range(5)]


def ran(chunk, version=3):
    return [Episode(spec.id, spec.group, spec.seed, (), policy_version=version) for spec in chunk.specs]


def test_chunks_are_cut_by_order_and_come_back_in_order():
    dispatch = Dispatch(SPECS, chunk_size=2, version=3)
    chunks = [dispatch.assign(worker) for worker in range(3)]
    assert [[spec.id for spec in chunk.specs] for chunk in chunks] == [["p0", "p1"], ["p2", "p3"], ["p4"]]
    assert dispatch.assign(9) is None
    for worker in (2, 0, 1):
        assert not dispatch.done
        dispatch.complete(worker, ran(chunks[worker]))
    assert dispatch.done
    assert [episode.id for episode in dispatch.episodes()] == ["p0", "p1", "p2", "p3", "p4"]


def test_no_specs_are_done_at_once():
    dispatch = Dispatch([], chunk_size=4, version=0)
    assert dispatch.done
    assert dispatch.episodes() == []


def test_a_lost_chunk_is_the_next_to_be_assigned_and_only_once():
    dispatch = Dispatch(SPECS, chunk_size=2, version=3)
    first = dispatch.assign(0)
    dispatch.lose(0, "it died")
    again = dispatch.assign(1)
    assert again.specs == first.specs
    assert again.again
    dispatch.lose(1, "it died too")
    rest = [dispatch.assign(2), dispatch.assign(3)]
    assert [chunk.specs[0].id for chunk in rest] == ["p2", "p4"]
    for worker, chunk in zip((2, 3), rest):
        dispatch.complete(worker, ran(chunk))
    assert dispatch.done
    assert dispatch.lost_chunks == 2
    ended = dispatch.episodes()
    assert [episode.id for episode in ended] == ["p0", "p1", "p2", "p3", "p4"]
    assert [episode.error for episode in ended] == ["EngineError: it died too"] * 2 + [None] * 3
    assert {episode.policy_version for episode in ended} == {3}


def test_losing_an_idle_worker_loses_nothing():
    dispatch = Dispatch(SPECS, chunk_size=5, version=0)
    dispatch.lose(4, "it died")
    assert len(dispatch.waiting) == 1
    assert dispatch.lost_chunks == 0


def test_a_lost_worker_cannot_come_back_with_its_chunk():
    dispatch = Dispatch(SPECS, chunk_size=5, version=3)
    chunk = dispatch.assign(0)
    dispatch.lose(0, "too slow")
    with pytest.raises(KeyError):
        dispatch.complete(0, ran(chunk))


def test_other_weights_and_other_specs_are_refused():
    dispatch = Dispatch(SPECS, chunk_size=2, version=3)
    chunk = dispatch.assign(0)
    with pytest.raises(StaleWeights, match="episode p0 was run with weights of version 2, not 3"):
        dispatch.complete(0, ran(chunk, version=2))
    other = dispatch.assign(1)
    with pytest.raises(EngineError, match="ran"):
        dispatch.complete(1, ran(other)[:1])


def test_a_worker_holds_one_chunk_at_a_time_and_ids_are_unique():
    dispatch = Dispatch(SPECS, chunk_size=1, version=0)
    dispatch.assign(0)
    with pytest.raises(EngineError, match="before it gave back"):
        dispatch.assign(0)
    with pytest.raises(EngineError, match="one id"):
        Dispatch([SPECS[0], SPECS[0]], chunk_size=1, version=0)
