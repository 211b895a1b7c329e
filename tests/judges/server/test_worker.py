import asyncio

import pytest

from lookact.errors import EngineError
from lookact.judges.server.limits import Limits
from lookact.judges.server.metrics import Metrics
from lookact.judges.server.queue import JobQueue
from lookact.judges.server.records import Reply
from lookact.judges.server.worker import Worker


def outcomes(generate, prompts, **limits):
    """What each prompt comes to, an exception being its text."""

    async def scenario():
        queue = JobQueue(Limits(**limits))
        working = asyncio.ensure_future(Worker(generate, queue, Metrics()).run())
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

        working = asyncio.ensure_future(Worker(generate, queue, Metrics()).run())
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
        working = asyncio.ensure_future(Worker(generate, queue, Metrics()).run())
        await asyncio.wait_for(jobs[1].future, 30)
        await asyncio.sleep(0.05)
        working.cancel()
        return jobs[0].future.done()

    assert asyncio.run(scenario()) is False
    assert heard == [[True, False]]


def test_an_engine_error_reaches_whoever_waits():
    async def scenario():
        queue = JobQueue(Limits())
        working = asyncio.ensure_future(Worker(lambda prompts, dropped: 1 / 0, queue, Metrics()).run())
        try:
            await asyncio.wait_for(queue.put("a").future, 30)
        finally:
            working.cancel()

    with pytest.raises(EngineError, match="ZeroDivisionError"):
        asyncio.run(scenario())
