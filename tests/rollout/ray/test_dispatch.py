import pytest

from lookact.errors import EngineError, StaleWeights
from lookact.rollout.ray.dispatch import Dispatch
from lookact.types import Episode, EpisodeSpec

PLANS = [EpisodeSpec(id=f"p{i}", group=i // 2, seed=i) for i in range(5)]


def ran(chunk, version=3):
    return [Episode(plan.id, plan.group, plan.seed, (), policy_version=version) for plan in chunk.plans]


def test_chunks_are_cut_by_order_and_come_back_in_order():
    book = Dispatch(PLANS, chunk=2, version=3)
    chunks = [book.hand_out(worker) for worker in range(3)]
    assert [[plan.id for plan in chunk.plans] for chunk in chunks] == [["p0", "p1"], ["p2", "p3"], ["p4"]]
    assert book.hand_out(9) is None
    for worker in (2, 0, 1):
        assert not book.done
        book.take_back(worker, ran(chunks[worker]))
    assert book.done
    assert [episode.id for episode in book.episodes()] == ["p0", "p1", "p2", "p3", "p4"]


def test_no_plans_are_done_at_once():
    book = Dispatch([], chunk=4, version=0)
    assert book.done
    assert book.episodes() == []


def test_a_lost_chunk_is_the_next_to_be_handed_out_and_only_once():
    book = Dispatch(PLANS, chunk=2, version=3)
    first = book.hand_out(0)
    book.lose(0, "it died")
    again = book.hand_out(1)
    assert again.plans == first.plans
    assert again.again
    book.lose(1, "it died too")
    rest = [book.hand_out(2), book.hand_out(3)]
    assert [chunk.plans[0].id for chunk in rest] == ["p2", "p4"]
    for worker, chunk in zip((2, 3), rest):
        book.take_back(worker, ran(chunk))
    assert book.done
    assert book.lost_chunks == 2
    ended = book.episodes()
    assert [episode.id for episode in ended] == ["p0", "p1", "p2", "p3", "p4"]
    assert [episode.error for episode in ended] == ["EngineError: it died too"] * 2 + [None] * 3
    assert {episode.policy_version for episode in ended} == {3}


def test_losing_an_idle_worker_loses_nothing():
    book = Dispatch(PLANS, chunk=5, version=0)
    book.lose(4, "it died")
    assert len(book.waiting) == 1
    assert book.lost_chunks == 0


def test_a_lost_worker_cannot_come_back_with_its_chunk():
    book = Dispatch(PLANS, chunk=5, version=3)
    chunk = book.hand_out(0)
    book.lose(0, "too slow")
    with pytest.raises(KeyError):
        book.take_back(0, ran(chunk))


def test_other_weights_and_other_plans_are_refused():
    book = Dispatch(PLANS, chunk=2, version=3)
    chunk = book.hand_out(0)
    with pytest.raises(StaleWeights, match="episode p0 was run with weights of version 2, not 3"):
        book.take_back(0, ran(chunk, version=2))
    other = book.hand_out(1)
    with pytest.raises(EngineError, match="ran"):
        book.take_back(1, ran(other)[:1])


def test_a_worker_holds_one_chunk_at_a_time_and_ids_are_unique():
    book = Dispatch(PLANS, chunk=1, version=0)
    book.hand_out(0)
    with pytest.raises(EngineError, match="before it gave back"):
        book.hand_out(0)
    with pytest.raises(EngineError, match="one id"):
        Dispatch([PLANS[0], PLANS[0]], chunk=1, version=0)
