"""SAC's gradient steps beside stable-baselines3's, and a judge asked many questions at once beside one at a time."""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from benchmarks.report import Aim, Row, lone_row, timed_row
from benchmarks.timing import Facts, Timing, Work, race
from lookact.data.replay import Replay
from lookact.judges import prompts
from lookact.judges.client import ClientSpec, JudgeClient, wait_until_ready
from lookact.judges.goals import CLASSIC
from lookact.judges.vlm_judge import VLMJudge
from lookact.models.sac import SAC, SACLearner
from lookact.models.vlm.loading import load_chat
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.recipes.pref_sac.config import SACConfig
from lookact.recipes.pref_sac.train import sac_update
from lookact.rollout.samplers.chat_engine import ChatEngine
from lookact.seeding import numpy_rng, torch_rng

FASTER, THRICE = Aim(1.6, at_least=True), Aim(3.0, at_least=True)
WITHOUT_SB3 = "not installed: pip install 'lookact[bench]'"
GOAL = CLASSIC["Pendulum"]
SURE = 20.0
"""How much larger logits are made: an untrained model wavers between words, and every tie is worked out again alone."""
NOTES = (
    "SAC: batches of 256 drawn from a full replay, states of 39 numbers and actions of 4, two layers of 256 for the "
    "actor and each of two critics, Adam, temperature learned, targets moved in every step; ratio = time of "
    "stable-baselines3 over LookAct's, whose step is `sac_update` of recipes/pref_sac/train.py",
    "what LookAct saves: both critics are one batched product, the actor's step works out no gradient of the critics' "
    "weights, and Adam is fused; all else is autograd on both sides",
    "labels: a tiny Qwen3-VL behind this project's server, one image pair of 64x64 a question, replies of 16 tokens; "
    "16 questions under way at once, against one at a time; client and server are counted together",
)


@dataclass(frozen=True)
class Load:
    """How much is done in one repetition."""

    state_size: int = 39
    action_size: int = 4
    hidden: tuple[int, int] = (256, 256)
    rows: int = 256
    capacity: int = 10_000
    steps: int = 60
    pairs: int = 32
    image_size: int = 64
    concurrency: int = 16


def measures(repetitions: int, load: Load | None = None) -> list[Callable[[], Row]]:
    """Functions that each give a row."""
    load = load or Load()
    return [partial(sac_row, load, repetitions), partial(label_row, load, repetitions)]


def sac_row(load: Load, repetitions: int) -> Row:
    """Gradient steps beside stable-baselines3's; LookAct's alone where that is missing."""
    name, ours = f"SAC gradient steps, batches of {load.rows}", (gradient_steps, (load,))
    if importlib.util.find_spec("stable_baselines3") is None:
        alone = race({"ours": ours}, repetitions=repetitions)
        return lone_row(name, alone, WITHOUT_SB3, _rate)
    times = race({"ours": ours, "against": (sb3_gradient_steps, (load,))}, repetitions=repetitions)
    return timed_row(name, times, FASTER, _rate)


def label_row(load: Load, repetitions: int) -> Row:
    """Questions asked together beside the same asked one after another."""
    with tempfile.TemporaryDirectory() as folder:
        make_judge(Path(folder), load)
        ways = {"ours": (labels, (folder, load, load.concurrency)), "against": (labels, (folder, load, 1))}
        times = race(ways, repetitions=repetitions)
        return timed_row(f"labels, {load.concurrency} at once", times, THRICE, _rate)


def _rate(timing: Timing) -> str:
    return f"{timing.facts['done'] / timing.median:.0f}/s"


def gradient_steps(load: Load) -> Work:
    """LookAct's gradient steps, by the function that pref-sac's loop calls."""
    torch.set_num_threads(1)
    generator = torch_rng(0, "bench")
    sac = SAC(load.state_size, load.action_size, hidden=load.hidden, alpha=1.0, generator=generator)
    learn = SACConfig()
    learner = SACLearner(sac, lr=learn.lr)
    replay = Replay(capacity=load.capacity, state_size=load.state_size, action_size=load.action_size)
    for state, action, after, reward in transitions(load):
        replay.add(state, action, reward, after, terminated=False, truncated=False)

    def work() -> Facts:
        for _ in range(load.steps):
            sac_update(learner, replay.sample(load.rows, generator), generator, learn)
        return {"done": load.steps, "weights": sum(parameter.numel() for parameter in sac.parameters())}

    return work


def sb3_gradient_steps(load: Load) -> Work:
    """The same by stable-baselines3."""
    from stable_baselines3 import SAC as Theirs
    from stable_baselines3.common.logger import configure

    torch.set_num_threads(1)
    model = Theirs(
        "MlpPolicy",
        Nowhere(load),
        batch_size=load.rows,
        buffer_size=load.capacity,
        policy_kwargs={"net_arch": list(load.hidden)},
        device="cpu",
        seed=0,
    )
    model.set_logger(configure(None, []))
    for state, action, after, reward in transitions(load):
        model.replay_buffer.add(state[None], after[None], action[None], np.array([reward]), np.zeros(1), [{}])

    def work() -> Facts:
        before = model._n_updates
        model.train(load.steps, load.rows)
        weights = sum(parameter.numel() for parameter in model.policy.parameters()) + 1
        return {"done": model._n_updates - before, "weights": weights}

    return work


def transitions(load: Load) -> list[tuple[Any, Any, Any, float]]:
    """State, action, next state and reward, by chance, as many as a replay holds."""
    rng = numpy_rng(0, "transitions")
    states = rng.normal(size=(load.capacity, load.state_size)).astype(np.float32)
    actions = rng.uniform(-1, 1, (load.capacity, load.action_size)).astype(np.float32)
    return list(zip(states, actions, np.roll(states, -1, axis=0), rng.normal(size=load.capacity).tolist()))


class Nowhere(gymnasium.Env[Any, Any]):
    """Spaces alone: stable-baselines3 reads the sizes of its networks from them."""

    def __init__(self, load: Load) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (load.state_size,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (load.action_size,), np.float32)


def make_judge(folder: Path, load: Load) -> None:
    """An untrained tiny checkpoint whose tokenizer knows the question."""
    corpus = [prompts.DESCRIBE_OPENING, prompts.DESCRIBE_BETWEEN, prompts.SINGLE.format(goal=GOAL)] * 50
    make_tiny(folder, corpus=corpus, spec=TinySpec(image_size=load.image_size))


def labels(folder: str, load: Load, concurrency: int) -> Work:
    """Verdicts on fresh pairs, `concurrency` questions at a time."""
    torch.set_num_threads(1)
    judge = VLMJudge(JudgeClient(ClientSpec(serve_here(Path(folder)), concurrency=concurrency)), variant="single")
    rng = numpy_rng(0, "pairs")

    def work() -> Facts:
        images = rng.integers(256, size=(load.pairs, 2, load.image_size, load.image_size, 3), dtype=np.uint8)
        given = judge.compare([(first, second) for first, second in images], GOAL)
        return {"done": len(given), "characters": sum(len(each.raw_text) for each in given)}

    return work


def serve_here(folder: Path) -> str:
    """The address of a server in a thread of this process, which ends with it."""
    from lookact.judges.server.app import create_app
    from lookact.serving.limits import Limits
    from lookact.serving.run import bind, make_server, run

    chat = load_chat(folder)
    with torch.no_grad():
        chat.model.model.language_model.norm.weight.mul_(SURE)
    limits, bound = Limits(), bind("127.0.0.1", 0)
    server = make_server(create_app(ChatEngine(chat), model="tiny", limits=limits), limits)
    threading.Thread(target=asyncio.run, args=(run(server, bound, limits),), daemon=True).start()
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    wait_until_ready(url, seconds=60.0)
    return url
