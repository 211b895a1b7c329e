import gc
import threading
import weakref

import numpy as np
import pytest

from lookact.errors import EnvError
from lookact.rollout.collect import collect
from lookact.types import Decision, EpisodeSpec, Observation


class Counter:
    """Shows a number that grows with each turn from where its options say; breaks where they say."""

    def reset(self, *, seed, options):
        if options.get("broken"):
            raise OSError("no such room")
        self.options, self.turn = options, 0
        return Observation(text=f"{options['start']}"), {}

    def step(self, action):
        self.turn += 1
        if self.turn == self.options.get("fails_at"):
            raise RuntimeError("the floor gave way")
        over = self.turn == self.options.get("turns", 2)
        cut_off = bool(self.options.get("truncated"))
        seen = Observation(text=f"{self.options['start'] + self.turn}")
        return seen, self.turn * 1.0, over and not cut_off, over and cut_off, {"said": action}

    def close(self):
        pass


class Recorder:
    """Says what it was shown, and remembers how it was called."""

    version = 7

    def __init__(self):
        self.calls, self.begun, self.ended = [], [], []

    def begin(self, row, seed):
        self.begun.append((row, seed))

    def act(self, rows, observations):
        assert len(rows) == len(observations)
        self.calls.append(list(rows))
        blank = np.zeros(1, np.float32)
        return [Decision(f"saw {observation.text}", blank, blank > 0) for observation in observations]

    def end(self, row):
        self.ended.append(row)


def spec(number, **options):
    return EpisodeSpec(f"e{number}", number // 2, 100 + number, {"start": number * 10, **options})


def test_every_row_is_answered_to_what_it_was_shown():
    episodes = collect([spec(1), spec(2), spec(3)], [Counter(), Counter()], Recorder())
    assert [episode.id for episode in episodes] == ["e1", "e2", "e3"]
    assert [(e.group, e.seed, e.policy_version) for e in episodes] == [(0, 101, 7), (1, 102, 7), (1, 103, 7)]
    for episode, start in zip(episodes, (10, 20, 30)):
        assert [turn.observation.text for turn in episode.turns] == [f"{start}", f"{start + 1}"]
        assert [turn.info["said"] for turn in episode.turns] == [f"saw {start}", f"saw {start + 1}"]
        assert [turn.reward for turn in episode.turns] == [1.0, 2.0]
        assert (episode.last.text, episode.total_reward) == (f"{start + 2}", 3.0)


def test_finished_rows_are_not_asked_again():
    actor = Recorder()
    collect([spec(1, turns=1), spec(2, turns=3), spec(3, turns=2)], [Counter() for _ in range(3)], actor)
    assert actor.calls == [[0, 1, 2], [1, 2], [1]]
    assert actor.begun == [(0, 101), (1, 102), (2, 103)]
    assert actor.ended == [0, 2, 1]


def test_in_one_thread_the_next_batch_begins_when_all_rows_of_the_last_have_ended():
    actor = Recorder()
    collect([spec(1, turns=1), spec(2, turns=3), spec(3), spec(4)], [Counter(), Counter()], actor)
    assert actor.calls == [[0, 1], [1], [1], [0, 1], [0, 1]]


def test_terminated_and_truncated_are_told_apart():
    ended, cut_off = collect([spec(1), spec(2, truncated=True)], [Counter(), Counter()], Recorder())
    assert (ended.terminated, ended.truncated) == (True, False)
    assert (cut_off.terminated, cut_off.truncated) == (False, True)


def test_an_environment_that_fails_is_data_and_the_others_go_on():
    specs = [spec(1, broken=True), spec(2, fails_at=2, turns=5), spec(3)]
    never, early, whole = collect(specs, [Counter() for _ in range(3)], Recorder())
    assert (never.error, len(never.turns), never.last) == ("OSError: no such room", 0, None)
    assert (early.error, len(early.turns), early.last.text) == ("RuntimeError: the floor gave way", 1, "21")
    assert (whole.error, len(whole.turns)) == (None, 2)


def test_a_wave_in_which_every_environment_fails_asks_nothing():
    actor = Recorder()
    episodes = collect([spec(1, broken=True)], [Counter()], actor)
    assert (actor.calls, actor.ended, len(episodes)) == ([], [0], 1)


@pytest.mark.parametrize("threads", [False, True])
def test_each_episode_is_told_of_once_those_before_it_have_ended(threads):
    heard, actor = [], Recorder()
    specs = [spec(1, turns=3), spec(2), spec(3), spec(4), spec(5)]
    episodes = collect(
        specs, [Counter(), Counter()], actor, threads=threads, finished=lambda e: heard.append((e, len(actor.ended)))
    )
    assert [episode for episode, _ in heard] == episodes
    # row 1 ended first, and waited to be told of
    assert threads or [ended for _, ended in heard] == [2, 2, 3, 4, 5]


def test_no_plans_need_no_environment_and_plans_do():
    assert collect([], [], Recorder()) == []
    with pytest.raises(EnvError, match="no environment"):
        collect([spec(1)], [], Recorder())


def test_an_actor_that_fails_stops_the_collection():
    class Broken(Recorder):
        def act(self, rows, observations):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        collect([spec(1)], [Counter()], Broken())


class Slow(Counter):
    """Answers an episode that is held only when it is released."""

    def __init__(self, release):
        self.release = release

    def step(self, action):
        if self.options.get("held"):
            assert self.release.wait(timeout=60), "the others wait for this one"
        return super().step(action)


@pytest.mark.parametrize("held", ["first", "last"])
def test_in_threads_nobody_waits_for_the_slowest_environment(held):
    release = threading.Event()

    class Releasing(Recorder):
        def end(self, row):
            super().end(row)
            # the other environment has run all the other specs meanwhile
            if len(self.ended) == 6:
                release.set()

    specs = [spec(i, held=i == (0 if held == "first" else 6)) for i in range(7)]
    episodes = collect(specs, [Slow(release) for _ in range(2)], Releasing(), threads=True)
    inline = collect(specs, [Counter() for _ in range(2)], Recorder())
    assert [[turn.info for turn in e.turns] for e in episodes] == [[turn.info for turn in e.turns] for e in inline]
    assert [episode.id for episode in episodes] == [episode.id for episode in inline]


def test_in_threads_an_environment_that_fails_is_data_too():
    specs = [spec(1, broken=True), spec(2, fails_at=2, turns=5), spec(3), spec(4)]
    episodes = collect(specs, [Counter(), Counter()], Recorder(), threads=True)
    errors = ["OSError: no such room", "RuntimeError: the floor gave way", None, None]
    assert [episode.error for episode in episodes] == errors


def test_in_threads_an_actor_that_fails_stops_the_collection():
    class Broken(Recorder):
        def act(self, rows, observations):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        collect([spec(1), spec(2)], [Counter(), Counter()], Broken(), threads=True)


def test_an_episode_that_is_not_kept_is_let_go_when_it_was_told():
    told, most = [], []

    def finished(episode):
        gc.collect()
        most.append(sum(other() is not None for other in told))
        told.append(weakref.ref(episode))

    assert (
        collect([spec(i) for i in range(12)], [Counter(), Counter()], Recorder(), finished=finished, keep=False) == []
    )
    assert len(told) == 12
    # the other row's and the one before it, however many there were
    assert max(most) <= 2
