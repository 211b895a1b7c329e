import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from lookact.errors import ConfigError
from lookact.text.token_bytes import token_bytes


# without "|" no special token can be spelled
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="|")))
def test_bytes_of_a_text_are_the_bytes_of_its_tokens(bpe_tokenizer, text):
    ids = bpe_tokenizer.encode(text, add_special_tokens=False)
    spelled = b"".join(token_bytes(bpe_tokenizer)[id] for id in ids)
    assert spelled == text.encode()


def test_special_tokens_have_no_bytes(byte_tokenizer):
    table = token_bytes(byte_tokenizer)
    for token in ("<|im_end|>", "<|endoftext|>", "<|image_pad|>"):
        assert table[byte_tokenizer.convert_tokens_to_ids(token)] == b""


def test_added_text_tokens_keep_their_text(byte_tokenizer):
    assert token_bytes(byte_tokenizer)[byte_tokenizer.convert_tokens_to_ids("</think>")] == b"</think>"


def test_every_byte_is_reached(byte_tokenizer):
    assert {piece for piece in token_bytes(byte_tokenizer) if len(piece) == 1} == {bytes([b]) for b in range(256)}


def test_table_is_built_once_and_again_when_the_vocabulary_grows():
    core = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core)
    table = token_bytes(tokenizer)
    assert table == [b"a"]
    assert token_bytes(tokenizer) is table
    tokenizer.add_tokens(["hello"])
    assert token_bytes(tokenizer) == [b"a", b"hello"]


def test_other_kinds_of_tokenizer_are_refused():
    core = Tokenizer(models.WordPiece(vocab={"[UNK]": 0, "日": 1}, unk_token="[UNK]"))
    with pytest.raises(ConfigError, match="not byte-level"):
        token_bytes(PreTrainedTokenizerFast(tokenizer_object=core))
