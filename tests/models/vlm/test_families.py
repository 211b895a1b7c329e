"""Every family against transformers' own modules: forward pass, generation, processor, adapters, saved folders."""

import json
import shutil
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

from benchmarks.parity import table
from lookact.algorithms.parity import LIMIT, Noise, disturb, gaps_of
from lookact.algorithms.vlm_settings import Model
from lookact.cli.parity import CORPUS
from lookact.data.packing import collate, to_segments
from lookact.errors import ConfigError, DataError, TokenMismatch
from lookact.models.vlm.families import FAMILIES, family_of
from lookact.models.vlm.loading import LoraSpec, load_chat, save_chat
from lookact.models.vlm.sources import CHAT_TYPES
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.text.actions import mask_action_tokens, token_bytes
from lookact.types import EpisodeSpec, Observation

SPECS = [EpisodeSpec(f"e{i}", 0, i, options={"turns": 3 + i}) for i in range(2)]
GREEDY = Sampling(max_tokens=8, min_action_tokens=1, greedy=True)


@pytest.fixture(scope="session")
def family_folders(tmp_path_factory):
    """A tiny checkpoint of every family, made once."""

    def make(name):
        spec = TinySpec(hidden=64, vision_hidden=32, image_size=64, vocabulary=512, family=name)
        return make_tiny(tmp_path_factory.mktemp(name), corpus=CORPUS, spec=spec)

    return {name: make(name) for name in FAMILIES}


@pytest.fixture(params=list(FAMILIES))
def folder(request, family_folders):
    return family_folders[request.param]


def stock_inputs(chat, ids, pixels, grids):
    """What the stock model of each family takes for one conversation (1, n)."""
    images = (ids == chat.image_pad_id).int()
    side = int((pixels.shape[1] / 3) ** 0.5)
    tiles = pixels.view(-1, 3, side, side) if not chat.family.mrope else None
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if chat.family.mrope:
        return inputs | {"pixel_values": pixels, "image_grid_thw": grids, "mm_token_type_ids": images}
    if chat.family.name == "gemma3":
        return inputs | {"pixel_values": tiles, "token_type_ids": images}
    return inputs | {"pixel_values": tiles[None] if chat.family.name == "smolvlm" else tiles}


@torch.no_grad()
def test_whole_conversations_are_scored_as_the_stock_model_scores_them(folder):
    chat, stock = load_chat(folder), AutoModelForImageTextToText.from_pretrained(folder)
    episodes = collect(SPECS, [Noise(), Noise()], HFSampler(chat, Sampling(max_tokens=40, min_action_tokens=1)))
    for episode in episodes:
        (segment,) = to_segments(episode, loss_on="reply")
        # longer than Gemma's window, and with images on both sides of its edge
        assert len(segment.ids) > 100
        inputs = collate([segment], chat.encode_images).inputs
        logits = stock(**stock_inputs(chat, inputs.ids, inputs.pixels[0], inputs.grids[0])).logits[0]
        logits = logits.masked_fill(chat.banned, -1e9)
        expected = logits.log_softmax(-1)[segment.positions - 1, segment.ids[segment.positions]]
        np.testing.assert_allclose(expected, segment.logprobs, atol=1e-4)
        np.testing.assert_allclose(expected, chat.evaluate(inputs).logprobs[0], atol=1e-4)


@pytest.mark.parametrize("name", ["smolvlm", "internvl"])
@torch.no_grad()
def test_a_large_image_becomes_several_tiles(family_folders, tmp_path, name):
    folder = shutil.copytree(family_folders[name], tmp_path / name)
    path = folder / "preprocessor_config.json"
    settings = json.loads(path.read_text())
    if name == "smolvlm":
        path.write_text(json.dumps(settings | {"size": {"longest_edge": 128}}))
    chat, stock = load_chat(folder), AutoModelForImageTextToText.from_pretrained(folder)
    image = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    ids = torch.tensor(chat.encode_prompt(chat.spelling.opening("", "Where is it?", 1), [image]))[None]
    pixels, grids = chat.encode_images([image])
    # two rows of two, and the whole
    assert (grids.tolist(), len(pixels)) == ([[5, 1, 1]], 5)
    assert int((ids == chat.image_pad_id).sum()) == 5 * 4
    own = chat.backbone(ids, None, chat.rope_positions(ids, grids, ids > -1), pixels, grids)
    theirs = stock.model(**stock_inputs(chat, ids, pixels, grids)).last_hidden_state
    torch.testing.assert_close(own, theirs, atol=1e-4, rtol=1e-4)
    fewer = load_chat(folder, max_pixels=64 * 64)
    assert fewer.encode_images([image])[1].tolist() == [[1, 1, 1]]


def greedy(chat, observation):
    actor = HFSampler(chat, GREEDY, system="Be brief.")
    actor.begin(0, 0)
    return actor.act([0], [observation])[0]


def looked():
    return Observation("Where is it?", {"view": np.random.default_rng(3).integers(0, 256, (64, 64, 3), dtype=np.uint8)})


def stock_greedy(model, chat, decision, observation):
    """The stock generation from the same prompt; tokens that a policy never samples are left out of it too."""
    ids = torch.tensor(decision.prompt_ids)[None]
    inputs = stock_inputs(chat, ids, *chat.encode_images(list(observation.images.values())))
    never = [[int(token)] for token in chat.banned.nonzero()]
    said = model.generate(
        **inputs, do_sample=False, max_new_tokens=8, eos_token_id=chat.end_id, bad_words_ids=never, pad_token_id=0
    )
    return said[0, ids.shape[1] :].tolist()


def test_saved_folders_and_adapters_open_with_the_stock_classes_and_say_the_same(folder, tmp_path):
    chat, observation = load_chat(folder, lora=LoraSpec(rank=2)), looked()
    disturb(chat)
    decision = greedy(chat, observation)
    assert abs(decision.logprobs[0] - greedy(load_chat(folder), observation).logprobs[0]) > 1e-3
    merged = save_chat(chat, tmp_path / "merged", merge=True)
    adapter = save_chat(chat, tmp_path / "adapter")
    models = [
        AutoModelForImageTextToText.from_pretrained(merged),
        PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained(folder), adapter),
    ]
    for model in models:
        assert stock_greedy(model, chat, decision, observation) == decision.token_ids.tolist()
    for saved in (merged, adapter):
        assert greedy(load_chat(saved), observation).token_ids.tolist() == decision.token_ids.tolist()
        assert AutoTokenizer.from_pretrained(saved).chat_template == chat.tokenizer.chat_template


def test_a_round_trip_keeps_every_bit_and_every_file(folder, tmp_path):
    chat = load_chat(folder)
    saved = save_chat(chat, tmp_path / "saved")
    assert {path.name for path in saved.iterdir()} == {path.name for path in folder.iterdir()}
    for name in ("preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json"):
        if (folder / name).exists():
            assert json.loads((saved / name).read_text()) == json.loads((folder / name).read_text())
    again = load_chat(saved).state_dict()
    assert all(torch.equal(again[name], weight) for name, weight in chat.state_dict().items())


def test_adapters_sit_in_the_language_model_alone(folder):
    chat = load_chat(folder, lora=LoraSpec(rank=2))
    adapted = {name.split(".lora_")[0] for name, _ in chat.named_parameters() if ".lora_A" in name}
    assert all(".language_model." in name or ".text_model." in name for name in adapted)
    # an MoE's experts are no linears
    assert len(adapted) == 2 * (4 if chat.family.name == "qwen3-vl-moe" else 7)


def test_gradients_reach_words_and_images(folder):
    chat = load_chat(folder)
    (episode,) = collect(SPECS[:1], [Noise()], HFSampler(chat, Sampling(max_tokens=4, min_action_tokens=1)))
    batch = collate(to_segments(episode, loss_on="reply"), chat.encode_images)
    chat.train()
    chat.gradient_checkpointing = True
    chat.evaluate(batch.inputs).logprobs.sum().backward()
    for part in (chat.vision, chat.decoder):
        grads = [weight.grad for weight in part.parameters() if weight.dim() > 1 and weight.grad is not None]
        assert len(grads) > 3
        assert all(float(grad.abs().sum()) > 0 for grad in grads[:3])


@pytest.mark.parametrize("name", list(FAMILIES))
def test_the_certificate_holds_on_every_way_to_sample(family_folders, name):
    kept = json.loads(Path(f"benchmarks/parity/{name}.json").read_text())["rows"]
    again = list(gaps_of(str(family_folders[name]), conversations=3, max_tokens=4))
    ways = ("family", "sampler", "reuse", "weights", "batch")
    assert [tuple(row[way] for way in ways) for row in kept] == [
        tuple(getattr(row, way) for way in ways) for row in again
    ]
    assert len({(row.reuse, row.weights, row.batch) for row in again}) == 2 * 3 * 2
    # of this machine, and of the one that the certificate was made on
    assert max(row.max for row in again) <= LIMIT
    assert max(row["max"] for row in kept) <= LIMIT
    assert min(row.tokens for row in again) > 25


def test_the_table_of_the_docs_is_that_of_the_certificates():
    assert table() in Path("docs/models.md").read_text()


def test_actions_are_found_in_replies_of_every_tokenizer(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    reply = 'I see ünder it. {"answer": "B"}'
    ids = tokenizer.encode(reply, add_special_tokens=False)
    assert b"".join(map(token_bytes(tokenizer).__getitem__, ids)).decode() == reply == tokenizer.decode(ids)
    found = mask_action_tokens(ids, tokenizer)
    assert found.method == "brace_depth"
    masked = tokenizer.decode([id for id, hit in zip(ids, found.mask) if hit])
    assert masked.strip() == '{"answer": "B"}'


# the processors of all others can read videos too, for which they want torchvision
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "gemma3" else pytest.mark.vllm) for name in FAMILIES]
)
def test_the_stock_processor_reads_a_saved_folder_as_we_do(family_folders, name, tmp_path, monkeypatch):
    if name != "gemma3":
        pytest.importorskip("torchvision", reason="torchvision is absent: `make test-vllm` runs this")
        from transformers.models.smolvlm import processing_smolvlm

        # says how many frames a video has: there is none here
        monkeypatch.setattr(processing_smolvlm, "num2words", str)
    chat, observation = load_chat(family_folders[name]), looked()
    saved, decision = save_chat(chat, tmp_path / "saved"), greedy(chat, observation)
    processor, model = AutoProcessor.from_pretrained(saved), AutoModelForImageTextToText.from_pretrained(saved)
    asked = [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": observation.text}]},
    ]
    text = processor.apply_chat_template(asked, add_generation_prompt=True)
    inputs = processor(text=text, images=[observation.images["view"]], return_tensors="pt", add_special_tokens=False)
    assert inputs["input_ids"][0].tolist() == decision.prompt_ids.tolist()
    own, _ = chat.encode_images([observation.images["view"]])
    torch.testing.assert_close(inputs["pixel_values"].reshape(own.shape), own, atol=1e-5, rtol=0)
    never = [[int(token)] for token in chat.banned.nonzero()]
    said = model.generate(
        **inputs, do_sample=False, max_new_tokens=8, eos_token_id=chat.end_id, bad_words_ids=never, pad_token_id=0
    )
    assert said[0, inputs["input_ids"].shape[1] :].tolist() == decision.token_ids.tolist()


def rewrite(folder, name, change):
    path = folder / name
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_tokenizer_or_a_template_of_another_model_is_one_line(family_folders, tmp_path):
    mixed = shutil.copytree(family_folders["smolvlm"], tmp_path / "mixed")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(family_folders["internvl"] / name, mixed / name)
    with pytest.raises(TokenMismatch, match="the tokenizer has no <end_of_utterance>, which ends a reply"):
        load_chat(mixed)
    other = shutil.copytree(family_folders["qwen2.5-vl"], tmp_path / "other")
    template = (other / "chat_template.jinja").read_text()
    (other / "chat_template.jinja").write_text(template.replace("<|image_pad|>", "<|video_pad|>"))
    with pytest.raises(TokenMismatch, match="0 image placeholders for 1 images"):
        load_chat(other)
    (other / "chat_template.jinja").write_text(template.replace("message.role + '", "(loop.length | string) + '"))
    with pytest.raises(TokenMismatch, match="the chat template rewrites earlier turns"):
        load_chat(other)
    (other / "chat_template.jinja").unlink()
    with pytest.raises(DataError, match=r"no chat template: put a chat_template\.jinja"):
        load_chat(other)
    small = shutil.copytree(family_folders["gemma3"], tmp_path / "small")
    rewrite(small, "config.json", lambda config: config.update(image_token_index=5))
    with pytest.raises(TokenMismatch, match="written without the model's image token, 5"):
        load_chat(small)


def test_more_tokens_than_the_model_has_rows_are_one_line(family_folders, tmp_path):
    folder = shutil.copytree(family_folders["internvl"], tmp_path / "long")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([f"<more{i}>" for i in range(9)])
    tokenizer.save_pretrained(folder)
    with pytest.raises(TokenMismatch, match=r"the tokenizer has \d+ tokens, the model \d+"):
        load_chat(folder)


def test_flash_attention_can_not_join_the_tokens_of_an_image(family_folders, flash_kernels):
    with pytest.raises(ConfigError, match="FlashAttention can't join"):
        load_chat(family_folders["gemma3"], attention="flash_attention_2", dtype="bfloat16")


def test_families_are_told_by_their_type():
    assert family_of("idefics3").name == "smolvlm"
    assert family_of("qwen3_vl_moe").name == "qwen3-vl-moe"
    assert family_of("bert").name == "other"
    assert {kind for family in FAMILIES.values() for kind in family.types} == set(CHAT_TYPES)
    assert tuple(FAMILIES) == get_args(get_type_hints(Model)["family"])
