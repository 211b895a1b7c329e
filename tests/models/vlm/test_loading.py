import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lookact.errors import ConfigError, DataError, TokenMismatch
from lookact.models.vlm import loading
from lookact.models.vlm.loading import (
    LoraSpec,
    base_state,
    engine_state,
    load_chat,
    load_processor,
    merged_state,
    save_chat,
    write_snapshot,
)
from lookact.models.vlm.policy import ChatVLM
from lookact.text.tokenizers import assert_same_tokenizer
from lookact.training.weights import write_weights

LORA = LoraSpec(rank=2, alpha=4, targets=("q_proj", "v_proj"))


def disturb_adapters(chat: ChatVLM) -> None:
    """Adapters start as zero changes; make them count."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in chat.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3, generator=generator)


def test_round_trip_keeps_every_bit(tiny_folder: Path, tmp_path: Path) -> None:
    chat = load_chat(tiny_folder, value_head=True)
    torch.nn.init.normal_(chat.value_head.output.weight, generator=torch.Generator().manual_seed(0))
    again = load_chat(save_chat(chat, tmp_path / "saved"))
    assert again.state_dict().keys() == chat.state_dict().keys()
    assert all(torch.equal(again.state_dict()[name], weight) for name, weight in chat.state_dict().items())
    assert again.encode_text("<|im_start|>Where is 0.75?") == chat.encode_text("<|im_start|>Where is 0.75?")
    assert again.tokenizer.chat_template == chat.tokenizer.chat_template
    assert json.loads(again.image_processor.to_json_string()) == json.loads(chat.image_processor.to_json_string())


def test_saved_weights_are_the_file_they_came_from(tiny_folder: Path, tmp_path: Path) -> None:
    save_chat(load_chat(tiny_folder), tmp_path)
    first, second = load_file(tiny_folder / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_lora_starts_as_the_base_and_trains_adapters_alone(tiny_folder: Path, conversations) -> None:
    base, adapted = load_chat(tiny_folder), load_chat(tiny_folder, lora=LORA)
    inputs = conversations(base, [2, 1])
    assert torch.equal(base.evaluate(inputs).logprobs, adapted.evaluate(inputs).logprobs)
    trained = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
    assert len(trained) == 2 * 2 * 2
    assert all("lora_" in name for name in trained)
    adapted.evaluate(inputs).logprobs.sum().backward()
    grads = [name for name, parameter in adapted.named_parameters() if parameter.grad is not None]
    assert grads == trained


def test_an_adapter_folder_loads_with_its_base(tiny_folder: Path, tmp_path: Path, conversations) -> None:
    chat = load_chat(tiny_folder, lora=LORA)
    disturb_adapters(chat)
    folder = save_chat(chat, tmp_path / "adapter")
    assert not (folder / "model.safetensors").exists()
    again = load_chat(folder)
    inputs = conversations(chat, [2])
    assert torch.equal(chat.evaluate(inputs).logprobs, again.evaluate(inputs).logprobs)
    assert any(parameter.requires_grad for parameter in again.parameters())


def test_a_run_with_adapters_can_be_moved(tiny_folder: Path, tmp_path: Path, monkeypatch) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_folder, run / "model")
    monkeypatch.chdir(tmp_path)
    chat = load_chat("run/model", lora=LORA)
    disturb_adapters(chat)
    save_chat(chat, "run/sft")
    write_weights(chat.model, Path("run/checkpoint-1"))
    moved = run.rename(tmp_path / "elsewhere")
    monkeypatch.chdir("/")
    for name in ("sft", "checkpoint-1"):
        assert str(tmp_path) not in (moved / name / "adapter_config.json").read_text()
        again = load_chat(moved / name)
        assert all(torch.equal(a, b) for a, b in zip(again.parameters(), chat.parameters()))
    shutil.rmtree(moved / "model")
    with pytest.raises(DataError, match="move the whole run"):
        load_chat(moved / "sft")


def test_a_base_outside_the_run_is_named_by_its_path(tiny_folder: Path, tmp_path: Path) -> None:
    folder = save_chat(load_chat(tiny_folder, lora=LORA), tmp_path / "run" / "sft")
    written = json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert written == str(tiny_folder.resolve())


@pytest.mark.parametrize(
    ("lora", "scale"),
    [
        (LoraSpec(rank=4), 2.0),
        (LoraSpec(rank=4, alpha=32), 8.0),
        (LoraSpec(rank=4, rslora=True), 4.0),
    ],
)
def test_the_scale_of_adapters(tiny_folder: Path, lora: LoraSpec, scale: float) -> None:
    layer = load_chat(tiny_folder, lora=lora).causal.model.language_model.layers[0].self_attn.q_proj
    assert layer.scaling["default"] == pytest.approx(scale)


def test_merged_export_needs_no_adapters_and_leaves_them_in_place(
    tiny_folder: Path, tmp_path: Path, conversations
) -> None:
    chat = load_chat(tiny_folder, lora=LORA)
    disturb_adapters(chat)
    inputs = conversations(chat, [2])
    before = chat.evaluate(inputs).logprobs
    merged = load_chat(save_chat(chat, tmp_path / "merged", merge=True))
    assert merged.model is merged.causal
    torch.testing.assert_close(merged.evaluate(inputs).logprobs, before, rtol=0, atol=1e-4)
    assert torch.equal(chat.evaluate(inputs).logprobs, before)


def test_lora_on_the_vision_tower(tiny_folder: Path, conversations) -> None:
    chat = load_chat(tiny_folder, lora=LoraSpec(rank=2, targets=("qkv", "proj", "linear_fc1")))
    inputs = conversations(chat, [1])
    before = chat.evaluate(inputs).logprobs
    disturb_adapters(chat)
    assert not torch.allclose(chat.evaluate(inputs).logprobs, before, atol=1e-3)
    chat.evaluate(inputs).logprobs.sum().backward()
    assert all(parameter.grad is not None for parameter in chat.parameters() if parameter.requires_grad)


def test_unknown_lora_target_is_one_line(tiny_folder: Path) -> None:
    with pytest.raises(ConfigError, match="no_such_proj"):
        load_chat(tiny_folder, lora=LoraSpec(targets=("no_such_proj",)))


def test_pixel_budget_takes(tiny_folder: Path) -> None:
    import numpy as np

    chat = load_chat(tiny_folder, max_pixels=64 * 64)
    _, grids = chat.encode_images([np.zeros((96, 96, 3), dtype=np.uint8)])
    assert chat.image_token_counts(grids) == [4]
    larger = load_chat(tiny_folder, min_pixels=128 * 128, max_pixels=256 * 256)
    _, grids = larger.encode_images([np.zeros((96, 96, 3), dtype=np.uint8)])
    assert larger.image_token_counts(grids) == [16]


def test_impossible_pixel_budget(tiny_folder: Path) -> None:
    with pytest.raises(ConfigError, match="must not exceed"):
        load_chat(tiny_folder, min_pixels=9000, max_pixels=4096)


def test_missing_folder_and_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no checkpoint at"):
        load_chat(tmp_path / "nowhere")
    with pytest.raises(DataError, match="has no config"):
        load_chat(tmp_path)


def test_torn_weights_and_foreign_models(tiny_folder: Path, tmp_path: Path) -> None:
    torn = shutil.copytree(tiny_folder, tmp_path / "torn")
    (torn / "model.safetensors").write_bytes((torn / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(DataError, match="cannot load"):
        load_chat(torn)
    (torn / "model.safetensors").unlink()
    with pytest.raises(DataError, match="cannot load"):
        load_chat(torn)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ConfigError, match="bert model"):
        load_chat(foreign)


def test_a_weight_that_is_missing_is_never_made_up(tiny_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "part")
    weights = load_file(folder / "model.safetensors")
    weights.pop("model.visual.merger.linear_fc1.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match="lacks weights"):
        load_chat(folder)


def test_quantising_without_its_package_names_the_extra(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"lookact\[quant\]"):
        load_chat(tiny_folder, quantise="nf4")


@pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="needs lookact[quant]")
def test_nf4_is_close_and_trains_adapters_alone(tiny_folder: Path, conversations) -> None:
    plain, small = load_chat(tiny_folder), load_chat(tiny_folder, quantise="nf4", lora=LORA)
    inputs = conversations(plain, [2])
    assert type(small.causal.model.language_model.layers[0].mlp.up_proj).__name__ == "Linear4bit"
    gap = (plain.evaluate(inputs).logprobs - small.evaluate(inputs).logprobs).abs().mean()
    assert 0.0 < float(gap) < 0.5
    small.evaluate(inputs).logprobs.sum().backward()
    trained = {name for name, parameter in small.named_parameters() if parameter.grad is not None}
    assert trained
    assert all("lora_" in name for name in trained)


def test_half_precision_scores_are_close(tiny_folder: Path, conversations) -> None:
    plain, half = load_chat(tiny_folder), load_chat(tiny_folder, dtype="bfloat16")
    inputs = conversations(plain, [1])
    assert half.output_weight.dtype == torch.bfloat16
    torch.testing.assert_close(half.evaluate(inputs).logprobs, plain.evaluate(inputs).logprobs, rtol=0, atol=0.3)


def test_a_plain_model_gives_its_own_tensors_under_the_names_on_disk(chat, tiny_folder):
    state, saved = merged_state(chat), load_file(tiny_folder / "model.safetensors")
    assert state.keys() == saved.keys()
    assert all(torch.equal(state[name], saved[name]) for name in saved)
    embedding = chat.causal.get_input_embeddings().weight
    assert state["model.language_model.embed_tokens.weight"].data_ptr() == embedding.data_ptr()


def test_adapters_are_merged_as_peft_merges_them(tiny_folder, tmp_path):
    chat = load_chat(tiny_folder, lora=LoraSpec(rank=2))
    for name, weight in chat.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(0))
    before = {name: weight.clone() for name, weight in chat.model.state_dict().items()}
    state = merged_state(chat)
    saved = load_file(save_chat(chat, tmp_path, merge=True) / "model.safetensors")
    assert state.keys() == saved.keys()
    for name in saved:
        torch.testing.assert_close(state[name], saved[name])
    assert all(torch.equal(before[name], weight) for name, weight in chat.model.state_dict().items())


def test_a_snapshot_loads_as_the_model_it_was_made_from(chat, tmp_path):
    again = load_chat(write_snapshot(chat, merged_state(chat), tmp_path / "snapshot"))
    assert all(torch.equal(a, b) for a, b in zip(chat.parameters(), again.parameters()))
    assert assert_same_tokenizer(load_processor(tmp_path / "snapshot"), chat) == []


def swap(content):
    vocabulary = content["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]


def rename_end(content):
    for token in content["added_tokens"]:
        if token["content"] == "<|im_end|>":
            token["content"] = "<|im_stop|>"


def shrink(content):
    content["size"]["longest_edge"] //= 2


@pytest.mark.parametrize(
    ("file", "change", "report"),
    [
        ("tokenizer.json", swap, "vocabulary: 2 ids differ"),
        ("tokenizer.json", rename_end, "special tokens: "),
        ("preprocessor_config.json", shrink, "image: size is"),
    ],
)
def test_an_engine_with_another_vocabulary_or_pixel_budget_is_refused_with_a_report(
    chat, tmp_path, file, change, report
):
    folder = write_snapshot(chat, merged_state(chat), tmp_path)
    content = json.loads((folder / file).read_text())
    change(content)
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(TokenMismatch, match=report):
        assert_same_tokenizer(load_processor(folder), chat)


def test_an_engine_with_another_template_is_refused_with_a_report(chat, tmp_path):
    folder = write_snapshot(chat, merged_state(chat), tmp_path)
    path = folder / "chat_template.jinja"
    path.write_text(path.read_text().replace("assistant", "agent"))
    with pytest.raises(TokenMismatch, match="chat template: from character"):
        assert_same_tokenizer(load_processor(folder), chat)


def test_code_in_a_checkpoint_is_not_run_even_if_the_terminal_says_yes(tmp_path, monkeypatch):
    config = {"model_type": "stranger", "auto_map": {"AutoConfig": "stranger.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "stranger.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: pass\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(DataError, match="cannot load"):
        load_chat(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_an_engine_is_sent_the_change_that_adapters_make(tiny_folder: Path) -> None:
    chat = load_chat(tiny_folder, lora=LORA)
    disturb_adapters(chat)
    sent, base, merged = engine_state(chat), base_state(chat), merged_state(chat)
    assert base.keys() == merged.keys()
    assert len(sent) == 2 * 2 * 2
    for name in [name for name in sent if ".lora_A." in name]:
        change = sent[name.replace("lora_A", "lora_B")] @ sent[name]
        weight = name.removeprefix("base_model.model.").replace(".lora_A", "")
        torch.testing.assert_close(base[weight] + change, merged[weight])
    whole = load_chat(tiny_folder)
    assert engine_state(whole).keys() == merged_state(whole).keys()
