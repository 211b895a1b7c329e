import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lookact.errors import ConfigError, DataError
from lookact.models.vlm import loading
from lookact.models.vlm.loading import LoraSpec, load_chat, save_chat
from lookact.models.vlm.policy import ChatVLM

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
