import json

import pytest
import torch
from safetensors.torch import load_file

from lookact.errors import TokenMismatch
from lookact.models.vlm.loading import LoraSpec, load_chat, save_chat
from lookact.models.vlm.merging import load_readers, merged_state, write_snapshot
from lookact.text.tokenizers import assert_same_tokenizer


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
    assert assert_same_tokenizer(load_readers(tmp_path / "snapshot"), chat) == []


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
        assert_same_tokenizer(load_readers(folder), chat)


def test_an_engine_with_another_template_is_refused_with_a_report(chat, tmp_path):
    folder = write_snapshot(chat, merged_state(chat), tmp_path)
    path = folder / "chat_template.jinja"
    path.write_text(path.read_text().replace("assistant", "agent"))
    with pytest.raises(TokenMismatch, match="chat template: from character"):
        assert_same_tokenizer(load_readers(folder), chat)
