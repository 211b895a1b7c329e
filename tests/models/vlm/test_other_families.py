"""A model of a family that nobody told us about: LLaVA, read again in every turn by its own processor."""

import functools

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from lookact.algorithms.parity import LIMIT, Noise, check_parity, gaps_of, measure
from lookact.algorithms.vlm import open_chat
from lookact.algorithms.vlm_settings import Model
from lookact.cli.parity import CORPUS
from lookact.data.packing import collate, to_segments
from lookact.errors import ConfigError, TokenMismatch
from lookact.models.vlm.families import OTHER
from lookact.models.vlm.loading import LoraSpec, load_chat, save_chat
from lookact.models.vlm.tiny import TinySpec, initialise, train_tokenizer
from lookact.rollout.collect import collect
from lookact.rollout.samplers.chat_engine import ChatEngine
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.seeding import torch_rng
from lookact.types import EpisodeSpec

SIZE = {"height": 32, "width": 32}


@pytest.fixture(scope="session")
def llava_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llava")
    tokenizer = train_tokenizer(CORPUS, TinySpec(vocabulary=400, family="smolvlm"))
    shapes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**shapes, image_size=32, patch_size=16),
        text_config=LlamaConfig(**shapes, vocab_size=len(tokenizer), pad_token_id=0, bos_token_id=1, eos_token_id=2),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        dtype="float32",
    )
    model = LlavaForConditionalGeneration(config).eval()
    initialise(model, torch_rng(0, "tiny"))
    model.save_pretrained(folder)
    images = CLIPImageProcessorPil(size=SIZE, crop_size=SIZE)
    LlavaProcessor(
        images,
        tokenizer,
        patch_size=16,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tokenizer.chat_template,
    ).save_pretrained(folder)
    return folder


def test_it_is_sampled_and_scored_by_reading_whole_conversations(llava_folder):
    rows = list(gaps_of(str(llava_folder), batches=(2,)))
    assert {(row.family, row.reuse) for row in rows} == {("other", False)}
    assert {row.weights for row in rows} == {"whole", "LoRA", "merged"}
    assert max(row.max for row in rows) <= LIMIT
    assert min(row.tokens for row in rows) > 100


@torch.no_grad()
def test_its_scores_are_the_stock_models_own(llava_folder):
    chat, stock = load_chat(llava_folder), AutoModelForImageTextToText.from_pretrained(llava_folder)
    assert chat.family is OTHER
    actor = HFSampler(chat, Sampling(max_tokens=6, min_action_tokens=1))
    (episode,) = collect([EpisodeSpec("e", 0, 0, options={"turns": 3})], [Noise()], actor)
    (segment,) = to_segments(episode, loss_on="reply")
    shown = AutoProcessor.from_pretrained(llava_folder).image_processor(list(segment.images), return_tensors="pt")
    ids = torch.tensor(segment.ids)[None]
    logits = stock(input_ids=ids, pixel_values=shown["pixel_values"]).logits[0].masked_fill(chat.banned, -1e9)
    expected = logits.log_softmax(-1)[segment.positions - 1, segment.ids[segment.positions]]
    np.testing.assert_allclose(expected, segment.logprobs, atol=1e-4)
    scores = chat.evaluate(collate([segment, segment], chat.encode_images).inputs)
    np.testing.assert_allclose(scores.logprobs[1], segment.logprobs, atol=1e-4)


def test_it_learns_and_is_saved_as_it_was(llava_folder, tmp_path):
    chat = load_chat(llava_folder, lora=LoraSpec(rank=2, targets=("q_proj",)))
    actor = HFSampler(chat, Sampling(max_tokens=3, min_action_tokens=1))
    (episode,) = collect([EpisodeSpec("e", 0, 0, options={"turns": 2})], [Noise()], actor)
    chat.evaluate(collate(to_segments(episode, loss_on="reply"), chat.encode_images).inputs).logprobs.sum().backward()
    assert any(float(weight.grad.abs().sum()) > 0 for weight in chat.parameters() if weight.grad is not None)
    saved = save_chat(chat, tmp_path / "saved", merge=True)
    assert load_chat(saved).spelling.opening("", "?", 1) == chat.spelling.opening("", "?", 1)
    assert AutoProcessor.from_pretrained(saved).image_token == "<image>"


def test_a_run_starts_with_it_only_if_it_scores_what_it_samples(llava_folder, tmp_path, monkeypatch):
    model = Model(source=str(llava_folder))
    assert open_chat(model, tmp_path, corpus=list, image_size=64, seed=0).family is OTHER
    chat = load_chat(llava_folder)
    forward = LlavaForConditionalGeneration.forward

    @functools.wraps(forward)
    def capped(self, *args, **more):
        output = forward(self, *args, **more)
        output.logits = 2.0 * torch.tanh(output.logits / 2.0)
        return output

    monkeypatch.setattr(LlavaForConditionalGeneration, "forward", capped)
    assert float(measure(chat, chat, reuse=False, batch=1, conversations=1, max_tokens=4).max()) > 0.01
    with pytest.raises(TokenMismatch, match=r"is a llava model, of no family known here, and scores its own replies"):
        check_parity(chat, "m")
    with pytest.raises(TokenMismatch, match="choose a model of docs/models"):
        open_chat(model, tmp_path, corpus=list, image_size=64, seed=0)


def test_what_its_own_code_raises_is_one_line(llava_folder, monkeypatch):
    chat, call = load_chat(llava_folder), LlavaProcessor.__call__

    def images_only(self, images=None, text=None, **more):
        if images is None:
            raise ValueError("images are expected\nalways")
        return call(self, images=images, text=text, **more)

    monkeypatch.setattr(LlavaProcessor, "__call__", images_only)
    # a turn without an image comes third
    with pytest.raises(ConfigError, match=r"a llava model, .* images: images are expected: choose a model of docs"):
        measure(chat, chat, reuse=False, batch=1, conversations=2, max_tokens=2)


def test_what_needs_its_parts_refuses_it_in_one_line(llava_folder):
    with pytest.raises(ConfigError, match="of no known family"):
        ChatEngine(load_chat(llava_folder))
    with pytest.raises(ConfigError, match=r"nobody knows how .* bounds its images"):
        load_chat(llava_folder, max_pixels=1024)
