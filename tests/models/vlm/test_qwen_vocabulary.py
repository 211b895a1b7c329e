"""Masks, prompts, parity and a gradient step with the vocabulary of the real Qwen3-VL."""

import json
from collections import Counter

import numpy as np
import pytest
import torch

from lookact.data.packing import collate, to_segments
from lookact.models.vlm.loading import LoraSpec, load_chat
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.seeding import numpy_rng
from lookact.text.actions import mask_action_tokens, token_bytes
from lookact.training.optim import build_adamw
from lookact.types import EpisodeSpec, Observation

SENTENCES = (
    "The chair stands to the left of the window.", "I can't see the refrigerator yet, so I look behind me.",
    "Ich sehe ein Sofa – etwa 2,5 m entfernt.", "椅子在左边。", "The path {to the door} is free 🚪.", "",
    "It's 1.25 metres away; let's go!", "Options: A. left B. right. It is B.",
)  # fmt: skip
FRAMES = ("{}", "\n{}", " ```json\n{}\n```", "\n\n```\n{}```\n", ' {{"note": "first"}} {}', " {} Done.")


def replies(count):
    """Texts as chat models write them, each with the action in it."""
    rng = numpy_rng(0, "replies")
    for _ in range(count):
        move = {"rotation_angle_degrees": int(rng.integers(-180, 181)), "forward_meters": round(rng.random() * 3, 2)}
        answer = {"answer": str(rng.choice(["A", "B", "C", "D", "3", "2.45", "12"]))}
        action = json.dumps(move if rng.random() < 0.5 else answer, indent=rng.choice([None, 2]))
        yield str(rng.choice(SENTENCES)) + str(rng.choice(FRAMES)).format(action) + "<|im_end|>", action


def test_the_vocabulary_is_the_one_that_qwen_was_trained_with(qwen_tokenizer):
    prompt = "<|im_start|>system\n<|im_end|><|im_start|>user\n<|image_pad|><|im_end|>\n<|im_start|>assistant\n"
    assert qwen_tokenizer.encode(prompt) == [
        151644, 8948, 198, 151645, 151644, 872, 198, 151655, 151645, 198, 151644, 77091, 198,
    ]  # fmt: skip
    assert qwen_tokenizer.convert_tokens_to_ids(["<think>", "</think>"]) == [151667, 151668]
    assert len(qwen_tokenizer.encode('{"answer": "B"}')) == 6


def test_the_action_of_every_realistic_reply_is_found_to_the_token(qwen_tokenizer):
    table, methods, lengths = token_bytes(qwen_tokenizer), Counter(), []
    for reply, action in replies(400):
        ids = qwen_tokenizer.encode(reply)
        found = mask_action_tokens(ids, qwen_tokenizer)
        masked = b"".join(table[id] for id, hit in zip(ids, found.mask) if hit).decode()
        # a token may hold a brace and what stands beside it
        assert action in masked, reply
        assert len(masked) <= len(action) + 4, (reply, masked)
        methods[found.method] += 1
        lengths.append(int(found.mask.sum()))
    assert methods == {"brace_depth": 400}
    assert min(lengths) < 10 < np.median(lengths) < 30


@pytest.fixture
def chat(qwen_folder):
    return load_chat(qwen_folder, lora=LoraSpec(rank=4))


class Look:
    """Three turns of noise."""

    def reset(self, *, seed, options):
        self.rng, self.turn = np.random.default_rng(seed), 0
        return self.look(), {}

    def step(self, action):
        self.turn += 1
        return self.look(), float(self.turn), self.turn == 3, False, {}

    def look(self):
        return Observation("Where is the chair?", {"head": self.rng.integers(0, 255, (64, 96, 3), dtype=np.uint8)})


@pytest.mark.slow
def test_sampling_equals_scoring_and_a_step_learns(chat):
    sampling, specs = Sampling(max_tokens=12), [EpisodeSpec(f"e{i}", 0, i) for i in range(3)]
    episodes = collect(specs, [Look() for _ in specs], HFSampler(chat, sampling, system="Be brief."))
    batch = collate([s for e in episodes for s in to_segments(e, loss_on="reply")], chat.encode_images)
    # rows of the embedding that no token stands for are never sampled
    assert int(batch.inputs.ids.max()) < len(chat.tokenizer) < len(chat.banned)
    optimizer = build_adamw({"policy": chat}, lr=1e-2)
    before = chat.evaluate(batch.inputs).logprobs
    assert (before - batch.logprobs)[batch.mask].abs().max() < 1e-4
    before[batch.mask].mean().neg().backward()
    optimizer.step()
    with torch.no_grad():
        after = chat.evaluate(batch.inputs).logprobs
    assert after[batch.mask].mean() > before[batch.mask].mean()
