import copy
from types import SimpleNamespace

import pytest
from tokenizers import normalizers

from lookact.errors import TokenMismatch
from lookact.text.tokenizers import (
    assert_same_tokenizer,
    compare,
)


def processor(tokenizer, **settings):
    image = {"patch_size": 16, "merge_size": 2, "size": {"longest_edge": 1024, "shortest_edge": 64}, **settings}
    return SimpleNamespace(tokenizer=tokenizer, chat_template=None, image_processor=SimpleNamespace(**image))


def test_a_copy_is_the_same(bpe_tokenizer):
    twin = copy.deepcopy(bpe_tokenizer)
    assert assert_same_tokenizer(bpe_tokenizer, twin) == []


def test_a_saved_and_loaded_tokenizer_is_the_same(bpe_tokenizer, tmp_path):
    bpe_tokenizer.save_pretrained(tmp_path)
    assert assert_same_tokenizer(bpe_tokenizer, type(bpe_tokenizer).from_pretrained(tmp_path)) == []


def test_other_vocabulary_names_the_first_differing_ids_and_merges(bpe_tokenizer, other_tokenizer):
    report = assert_same_tokenizer(bpe_tokenizer, other_tokenizer, strict=False)
    assert any(line.startswith("vocabulary:") and "id 27" in line and " against " in line for line in report)
    assert any(line.startswith("merges: number 0 is ") for line in report)
    with pytest.raises(TokenMismatch, match="vocabulary: ") as caught:
        assert_same_tokenizer(bpe_tokenizer, other_tokenizer)
    assert "\n" not in str(caught.value)


def test_other_chat_template_is_shown_where_it_departs(bpe_tokenizer):
    twin = copy.deepcopy(bpe_tokenizer)
    twin.chat_template = bpe_tokenizer.chat_template.replace("assistant", "model")
    at = bpe_tokenizer.chat_template.index("assistant")
    (line,) = compare(bpe_tokenizer, twin)
    assert line.startswith(f"chat template: from character {at}, ")
    assert "assistant" in line
    assert "model" in line


def test_added_special_token_and_other_end_are_named(bpe_tokenizer):
    twin = copy.deepcopy(bpe_tokenizer)
    twin.add_special_tokens({"eos_token": "<|stop|>"})
    report = compare(bpe_tokenizer, twin)
    assert "special tokens: eos_token is '<|im_end|>' against '<|stop|>'" in report
    assert "special tokens: 400 is None against '<|stop|>'" in report


def test_padding_role_is_nobodys_business(bpe_tokenizer):
    twin = copy.deepcopy(bpe_tokenizer)
    twin.pad_token = "<|im_end|>"
    assert compare(bpe_tokenizer, twin) == []


def test_splitting_is_compared(bpe_tokenizer):
    twin = copy.deepcopy(bpe_tokenizer)
    twin.backend_tokenizer.normalizer = normalizers.NFC()
    assert compare(bpe_tokenizer, twin) == ["splitting: the normaliser or pre-tokeniser differs"]


def test_processors_differ_by_pixel_budget(bpe_tokenizer):
    first = processor(bpe_tokenizer)
    assert compare(first, processor(bpe_tokenizer)) == []
    assert compare(first, processor(bpe_tokenizer, patch_size=14)) == ["image: patch_size is 16 against 14"]
    budget = compare(first, processor(bpe_tokenizer, size={"longest_edge": 2048, "shortest_edge": 64}))
    assert len(budget) == 1
    assert "2048" in budget[0]
    assert compare(first, bpe_tokenizer) == []
