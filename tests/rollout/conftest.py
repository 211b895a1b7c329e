"""A tiny chat model and a toy world, made once."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch.nn.functional import linear

from lookact.models.vlm.loading import load_chat
from lookact.models.vlm.tiny import make_tiny
from lookact.ops.logprobs import adjust_logits, gather_logprobs, sample_tokens
from lookact.rollout.samplers.chat_engine import SingleSequenceDecoder
from lookact.rollout.weight_sync import norms_of
from lookact.seeding import numpy_rng
from lookact.text.chat import expand_images
from lookact.types import Observation, TokenReply

CORPUS = [
    f'I see it. {{"rotation_angle_degrees": {angle}, "forward_meters": {step}}}'
    for angle in range(-180, 181, 15)
    for step in (0.0, 0.25, 0.5, 1.0)
] + [f"Go to the chair. Turn {i} of 10." for i in range(1, 11)]


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("tiny"), corpus=CORPUS, seed=0)


@pytest.fixture
def chat(tiny_folder):
    return load_chat(tiny_folder)


class ToyEnv:
    """Shows noise drawn from its seed; an episode lasts as many turns as its options say."""

    def reset(self, *, seed, options):
        self.rng = np.random.default_rng(seed)
        self.turn, self.turns, self.explode = 0, options.get("turns", 3), options.get("explode", -1)
        return self._look(), {}

    def step(self, action):
        self.turn += 1
        if self.turn == self.explode:
            raise RuntimeError("the floor gave way")
        return self._look(), float(self.turn), self.turn == self.turns, False, {"said": action}

    def _look(self):
        cameras = ("head", "wrist")[: 1 + self.turn % 2]
        images = {name: self.rng.integers(0, 255, (64, 96, 3), dtype=np.uint8) for name in cameras}
        return Observation(text=f"Go to the chair. Turn {self.turn + 1} of 10.", images=images)

    def close(self):
        pass


@pytest.fixture
def toy_envs():
    return [ToyEnv() for _ in range(4)]


class CopyEngine:
    """A `TokenEngine` without vLLM: a second copy of the model, which reads whole conversations one by one."""

    def __init__(self, chat):
        self.chat, self.version = copy.deepcopy(chat).eval(), 0
        self.asked, self.numbers = {}, itertools.count()

    def submit(self, prompt, params):
        self.asked[number := next(self.numbers)] = (prompt, params)
        return number

    @torch.no_grad()
    def poll(self, timeout_s):
        """One reply a call, the last that was asked for first."""
        return [(number, self._reply(*asked)) for number, asked in [self.asked.popitem()]]

    def load(self, state, version):
        self.chat.causal.load_state_dict(state, strict=False)
        self.version = version
        return norms_of(state)

    def sleep(self):
        pass

    def wake(self):
        pass

    def close(self):
        pass

    def _reply(self, prompt, params):
        pixels, grids = self.chat.encode_images(prompt.images)
        read = expand_images(prompt.ids, self.chat.image_pad_id, self.chat.image_token_counts(grids))
        stream, sampled, logprobs = SingleSequenceDecoder(self.chat, read, pixels, grids), [], []
        uniforms = torch.from_numpy(numpy_rng(prompt.seed, "engine").random(params["max_tokens"]))
        banned = torch.zeros_like(self.chat.banned)
        banned[list(params["logit_bias"])] = True
        while len(sampled) < params["max_tokens"] and (not sampled or sampled[-1] not in params["stop_token_ids"]):
            logits = adjust_logits(
                linear(stream.hidden(sampled), self.chat.output_weight),
                temperature=params["temperature"] or 1.0,
                banned=banned,
                top_k=params["top_k"],
                top_p=params["top_p"],
            )
            uniform = uniforms[len(sampled) : len(sampled) + 1] if params["temperature"] else None
            token = sample_tokens(logits, uniform)
            sampled.append(int(token))
            logprobs.append(float(gather_logprobs(logits, token)))
        return TokenReply(read, np.array(sampled), np.array(logprobs, dtype=np.float32), self.version)


@pytest.fixture
def copy_engine(chat):
    return CopyEngine(chat)
