"""One seeded task through this process, our server, OpenEnv, verifiers and TRL's factory: byte-identical episodes."""

import asyncio
import dataclasses
import importlib.util
import re
import socket
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lookact.envs.interop.messages import openai_message
from lookact.envs.remote.codec import encode
from lookact.rollout.collect import collect
from lookact.tasks.registry import find_task, make_task

ABSENT = not all(map(importlib.util.find_spec, ("openenv", "verifiers")))
MOVES = [
    f'{{"rotation_angle_degrees": {angle}, "forward_meters": {step}}}'
    for angle, step in ((30, 0.5), (-45, 0.25), (0, 1.0), (90, 0.0), (15, 0.5), (0, 0.75))
]
WORDS = [f'{{"action": "{word}"}}' for word in ("down", "right", "nothing", "right", "down", "down", "right", "up")]
TASKS = {"navigation": ({"image_size": 32, "max_turns": 4}, MOVES), "frozen-lake": ({"size": 3, "max_turns": 6}, WORDS)}
SEEDS = 3


def task_of(name):
    settings, words = TASKS[name]
    task = make_task(find_task(name)(**settings), 0)
    return task, task.specs(7, "train", groups=SEEDS), words


def run(env, spec, words):
    """An episode as what the environment gave: the start, and every step until it ended."""
    start, turns = env.reset(seed=spec.seed, options=spec.options), []
    for word in words:
        turns.append(env.step(word))
        if turns[-1][2] or turns[-1][3]:
            break
    return start, turns


def in_process(name):
    task, specs, words = task_of(name)
    env = task.make_env()
    return [run(env, spec, words) for spec in specs]


def by_server(name, serve_app):
    from lookact.envs.remote.app import LIMITS, create_app

    task, specs, words = task_of(name)
    url = serve_app(create_app(lambda seed: task, name=name), LIMITS)
    env = make_task(find_task(url)(), 0).make_env()
    episodes = [run(env, spec, words) for spec in specs]
    env.close()
    return episodes


def by_trl(name):
    from lookact.envs.interop.trl import dataset_rows, environment_factory, episode_return

    task, specs, words = task_of(name)
    environment, episodes = environment_factory(task)(), []
    for row in dataset_rows(specs):
        shown = [environment.reset(**row)]
        for word in words:
            shown.append(environment.act(reply=word))
            if environment.turns[-1][2] or environment.turns[-1][3]:
                break
        with pytest.raises(ValueError, match="over"):
            environment.act(reply=words[0])
        assert episode_return([environment]) == [sum(turn[1] for turn in environment.turns)]
        seen = [environment.start[0], *(turn[0] for turn in environment.turns)]
        for blocks, observation in zip(shown, seen, strict=True):
            (image,) = (np.asarray(block["image"]) for block in blocks if block["type"] == "image")
            assert image.tobytes() == next(iter(observation.images.values())).tobytes()
            assert blocks[-1]["text"] == observation.text
        episodes.append((environment.start, list(environment.turns)))
    return episodes


@contextmanager
def openenv_served(app):
    import uvicorn

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        while not server.started:
            thread.join(0.01)
            assert thread.is_alive()
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        server.should_exit = True
        thread.join(60)


def by_openenv(name):
    from lookact.envs.interop.openenv import OpenEnvEnv, openenv_app

    task, specs, words = task_of(name)
    with openenv_served(openenv_app(task)) as url:
        env = OpenEnvEnv(url)
        episodes = [run(env, spec, words) for spec in specs]
        env.close()
    return episodes


def by_verifiers(name, serve_here):
    """The replies come from a VLM server, by OpenAI's protocol, as verifiers asks any model."""
    from openai import AsyncOpenAI
    from verifiers.legacy.clients import OpenAIChatCompletionsClient

    from lookact.envs.interop.verifiers import verifiers_environment
    from lookact.judges.server.batching import Reply

    task, specs, words = task_of(name)

    def say_next(prompts, dropped):
        for index, prompt in enumerate(prompts):
            turn = sum(message.role == "assistant" for message in prompt.messages)
            yield index, Reply(words[turn], 1, 1)

    env, url = verifiers_environment(task, specs), serve_here(say_next, images=64)

    async def roll_out():
        client = OpenAIChatCompletionsClient(AsyncOpenAI(base_url=f"{url}/v1", api_key="none"))
        states = [await env.rollout(row, client, "echo", {"max_tokens": 64}) for row in env.get_dataset()]
        for state in states:
            await env.rubric.score_rollout(state)
        return states

    episodes = []
    for state in asyncio.run(roll_out()):
        assert state["error"] is None
        assert state["reward"] == sum(turn[1] for turn in state["turns"])
        assert state["prompt"][-1].model_dump() == openai_message(state["start"][0])
        episodes.append((state["start"], state["turns"]))
    return episodes


def told(episodes):
    return [
        encode([start[0], dict(start[1]), [[*turn[:4], dict(turn[4])] for turn in turns]]) for start, turns in episodes
    ]


@pytest.mark.parametrize("name", TASKS)
def test_our_server_and_trls_factory_give_the_episodes_of_this_process(serve_app, name):
    here = in_process(name)
    assert len(here) == SEEDS
    assert told(by_server(name, serve_app)) == told(here)
    assert told(by_trl(name)) == told(here)


@pytest.mark.interop
@pytest.mark.skipif(ABSENT, reason="OpenEnv or verifiers is absent: `make test-interop` runs this")
@pytest.mark.parametrize("name", TASKS)
def test_all_of_them_give_the_episodes_of_this_process(serve_app, serve_here, name):
    here = told(in_process(name))
    assert told(by_server(name, serve_app)) == here
    assert told(by_trl(name)) == here
    assert told(by_openenv(name)) == here
    assert told(by_verifiers(name, serve_here)) == here


@pytest.mark.interop
@pytest.mark.skipif(ABSENT, reason="OpenEnv or verifiers is absent: `make test-interop` runs this")
def test_the_tutorials_snippets_run():
    page = (Path(__file__).parents[3] / "docs/tutorials/openenv.md").read_text(encoding="utf-8")
    names = [{}, {}, {}]
    for text, found in zip(re.findall(r"```py\n(.*?)```", page, re.DOTALL), names, strict=True):
        exec(compile(text, "openenv.md", "exec"), found)
    task, served, interop = names[0]["TASK"], names[1]["app"], names[2]
    assert len(interop["rows"]) == len(interop["environment"].get_dataset()) == 4
    with openenv_served(served) as url:
        task = dataclasses.replace(
            task, make_env=partial(names[0]["make_env"].func, url, **names[0]["make_env"].keywords)
        )
        episodes = collect(task.specs(0, "train", groups=2), [task.make_env()], task.random_actor())
    assert [episode.error for episode in episodes] == [None, None]
    assert all(episode.turns[-1].terminated for episode in episodes)
    assert task.report(episodes)["valid_action_rate"] == 1.0
