import os
import time

import pytest

from benchmarks.timing import CPU, WALL, race
from lookact.errors import EngineError


def writes(name, journal):
    def work():
        with journal.open("a") as file:
            file.write(name)
        return {"threads": float(os.environ["OMP_NUM_THREADS"])}

    return work


def sleeps():
    def work():
        time.sleep(0.05)
        return {}

    return work


def holds(megabytes):
    def work():
        return {"held": float(len(bytearray(megabytes * 10**6)))}

    return work


def tells_its_own_times():
    return lambda: {CPU: 2.5, WALL: 3.5, "tokens": 7.0}


def fails():
    def work():
        raise RuntimeError("the floor gave way")

    return work


def dies():
    return lambda: os._exit(3)


def test_repetitions_alternate_and_warm_up_does_not_count(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    journal = tmp_path / "journal"
    times = race({"a": (writes, ("a", journal)), "b": (writes, ("b", journal))}, repetitions=3)
    assert journal.read_text() == "ab" * 4
    assert len(times["a"].seconds) == len(times["b"].wall_seconds) == 3
    assert times["a"].facts == {"threads": 1.0}
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_waiting_takes_wall_time_but_no_cpu_time():
    times = race({"only": (sleeps, ())}, repetitions=1, warmup=0)["only"]
    assert times.wall_seconds[0] >= 0.05 > times.seconds[0]


def test_a_sides_peak_memory_is_its_own():
    times = race({"small": (holds, (1,)), "large": (holds, (200,))}, repetitions=1, warmup=0)
    assert times["large"].peak_mb - times["small"].peak_mb == pytest.approx(199, abs=20)
    assert times["large"].peak_mb - times["large"].start_mb == pytest.approx(200, abs=20)


def test_a_work_may_tell_its_own_times():
    times = race({"only": (tells_its_own_times, ())}, repetitions=2)["only"]
    assert (times.seconds, times.wall_seconds, times.facts) == ((2.5, 2.5), (3.5, 3.5), {"tokens": 7.0})
    assert times.median == 2.5


@pytest.mark.parametrize(("way", "message"), [(fails, "the floor gave way"), (dies, "died without a word")])
def test_a_side_that_breaks_is_told(way, message):
    with pytest.raises(EngineError, match=message):
        race({"sound": (sleeps, ()), "broken": (way, ())}, repetitions=1)
