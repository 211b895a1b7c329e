import asyncio
import selectors

import pytest

from lookact.judges.server.limits import Limits, Refused
from lookact.judges.server.queue import JobQueue

LIMITS = Limits(queue=3, batch=2, batch_wait=0.05)


class Leaping(asyncio.SelectorEventLoop):
    """A loop whose clock leaps to the next timer when there is nothing else to do: its seconds are exact and free."""

    def __init__(self):
        super().__init__(selectors.SelectSelector())
        self.now, select = 0.0, self._selector.select

        def leap(timeout=None):
            self.now += timeout or 0.0
            return select(0.0)

        self._selector.select = leap

    def time(self):
        return self.now


def play(scenario):
    """What a scenario of one thread returns."""
    with asyncio.Runner(loop_factory=Leaping) as runner:
        return runner.run(scenario)


def test_batches_are_taken_in_order_and_no_larger_than_allowed():
    async def scenario():
        queue = JobQueue(LIMITS)
        jobs = [queue.put(name) for name in "abc"]
        return jobs, await queue.take(), await queue.take()

    jobs, first, second = play(scenario())
    assert (first, second) == (jobs[:2], jobs[2:])


def test_a_full_queue_refuses_and_says_when_to_return():
    async def scenario():
        queue = JobQueue(LIMITS)
        queue.batch_seconds = 4.0
        for name in "abc":
            queue.put(name)
        queue.put("d")

    with pytest.raises(Refused) as caught:
        play(scenario())
    # (1 + 3 / 2) batches of 4 seconds
    assert (caught.value.status, caught.value.retry_after) == (429, 10)


def test_who_leaves_frees_the_place():
    async def scenario():
        queue = JobQueue(LIMITS)
        jobs = [queue.put(name) for name in "abc"]
        queue.drop(jobs[1])
        queue.put("d")
        return [job.prompt for job in await queue.take() + await queue.take()], jobs[1].dropped

    assert play(scenario()) == (["a", "c", "d"], True)


def test_a_late_comer_joins_the_batch_that_waits():
    async def scenario():
        queue = JobQueue(Limits(batch=2, batch_wait=30.0))
        taking = asyncio.ensure_future(queue.take())
        queue.put("a")
        await asyncio.sleep(0.01)
        queue.put("b")
        return [job.prompt for job in await asyncio.wait_for(taking, 10)]

    assert play(scenario()) == ["a", "b"]


def test_who_was_answered_together_is_waited_for_longer_than_a_moment():
    async def scenario(answered):
        queue = JobQueue(Limits(batch=3, batch_wait=0.2))
        for name in answered:
            queue.put(name)
        await queue.take()
        taking = asyncio.ensure_future(queue.take())
        await asyncio.sleep(0.0)
        queue.put("again")
        # two moments later
        await asyncio.sleep(0.4)
        queue.put("later")
        return [job.prompt for job in await taking]

    assert play(scenario("ab")) == ["again", "later"]
    assert play(scenario("a")) == ["again"]


def test_who_came_while_others_were_answered_belongs_to_the_crowd():
    async def scenario():
        queue = JobQueue(Limits(batch=3, batch_wait=0.2))
        queue.put("early")
        await queue.take()
        queue.put("came meanwhile")
        taking = asyncio.ensure_future(queue.take())
        await asyncio.sleep(0.4)
        queue.put("early again")
        return [job.prompt for job in await taking]

    assert play(scenario()) == ["came meanwhile", "early again"]
