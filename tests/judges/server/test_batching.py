import asyncio
import selectors

import pytest

from lookact.errors import EngineError
from lookact.judges.server.batching import JobQueue, Reply, Worker
from lookact.serving.limits import Limits, Refused
from lookact.serving.metrics import Metrics

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


def outcomes(generate, prompts, **limits):
    """What each prompt comes to, an exception being its text."""

    async def scenario():
        queue = JobQueue(Limits(**limits))
        working = asyncio.ensure_future(Worker(generate, queue, Metrics({})).run())
        jobs = [queue.put(prompt) for prompt in prompts]
        found = await asyncio.wait_for(asyncio.gather(*(job.future for job in jobs), return_exceptions=True), 30)
        working.cancel()
        return [outcome if isinstance(outcome, Reply) else str(outcome) for outcome in found]

    return asyncio.run(scenario())


def test_only_the_guilty_prompt_of_a_batch_fails():
    sizes = []

    def generate(prompts, dropped):
        sizes.append(len(prompts))
        for index, prompt in enumerate(prompts):
            if prompt == "bad":
                raise RuntimeError("out of memory")
            yield index, Reply(prompt)

    good, bad, late = outcomes(generate, ["good", "bad", "late"])
    assert (good.text, late.text) == ("good", "late")
    assert bad == "the model failed: RuntimeError: out of memory"
    # together, then those left over one by one
    assert sizes == [3, 1, 1]


def test_a_prompt_without_a_reply_is_told_so():
    assert outcomes(lambda prompts, dropped: iter(()), ["a"]) == ["the model gave no reply"]


def test_replies_come_as_they_are_finished():
    async def scenario():
        queue = JobQueue(Limits())
        go_on = asyncio.Event()
        loop = asyncio.get_running_loop()

        def generate(prompts, dropped):
            yield 1, Reply("short")
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(30)
            yield 0, Reply("long")

        working = asyncio.ensure_future(Worker(generate, queue, Metrics({})).run())
        long, short = queue.put("long"), queue.put("short")
        first = await asyncio.wait_for(short.future, 30)
        waiting = not long.future.done()
        go_on.set()
        second = await asyncio.wait_for(long.future, 30)
        working.cancel()
        return first.text, waiting, second.text

    assert asyncio.run(scenario()) == ("short", True, "long")


def test_the_model_hears_who_has_left():
    heard = []

    async def scenario():
        queue = JobQueue(Limits())

        def generate(prompts, dropped):
            jobs[0].dropped = True
            heard.append([dropped(0), dropped(1)])
            yield 1, Reply("stayed")

        jobs = [queue.put("left"), queue.put("stayed")]
        working = asyncio.ensure_future(Worker(generate, queue, Metrics({})).run())
        await asyncio.wait_for(jobs[1].future, 30)
        await asyncio.sleep(0.05)
        working.cancel()
        return jobs[0].future.done()

    assert asyncio.run(scenario()) is False
    assert heard == [[True, False]]


def test_an_engine_error_reaches_whoever_waits():
    async def scenario():
        queue = JobQueue(Limits())
        working = asyncio.ensure_future(Worker(lambda prompts, dropped: 1 / 0, queue, Metrics({})).run())
        try:
            await asyncio.wait_for(queue.put("a").future, 30)
        finally:
            working.cancel()

    with pytest.raises(EngineError, match="ZeroDivisionError"):
        asyncio.run(scenario())
