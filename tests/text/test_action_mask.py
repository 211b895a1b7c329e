import json
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from lookact.errors import ConfigError, ParseError
from lookact.text.actions import CONFIDENCE, mask_action_tokens, parse_action, parse_move_or_answer, token_bytes

MOVE = '{"rotation_angle_degrees": -30, "forward_meters": 0.75}'
WIDE = {"min_tokens": 1, "max_tokens": 10_000}


def masked(text, tokenizer, **limits):
    """Method and masked text of an encoded reply."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    found = mask_action_tokens(ids, tokenizer, **(WIDE | limits))
    table = token_bytes(tokenizer)
    assert found.mask.shape == (len(ids),)
    assert found.mask.dtype == np.bool_
    assert found.confidence == CONFIDENCE[found.method]
    return found.method, b"".join(table[id] for id, hit in zip(ids, found.mask) if hit).decode()


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        (MOVE, MOVE),
        (f"I see a chair.\n{MOVE}<|im_end|>", MOVE),
        (f"<think>{{hm}}</think>```json\n{MOVE}\n```<|im_end|>", MOVE),
        (f"first {{}} then {MOVE} and {{so on}}", MOVE),
        (f"über 🚪 café {MOVE} 🚪", MOVE),
        ('x {"a": {"b": "} \\" {"}} y', '{"a": {"b": "} \\" {"}}'),
        ("x {rotation: 30, {nested}} y", "{rotation: 30, {nested}}"),
        ('{"wall": "日本 🚪"} 日', '{"wall": "日本 🚪"}'),
    ],
)
def test_brace_depth_covers_exactly_the_action(byte_tokenizer, reply, action):
    assert masked(reply, byte_tokenizer) == ("brace_depth", action)


@pytest.mark.parametrize(
    ("reply", "masked_text"),
    [
        (f"left {MOVE}? No.</think>\n\n" + '{"answer": "B"}', '{"answer": "B"}'),
        (f"left {MOVE}? No.</think>\n\nI am done.", ""),
        (f"left {MOVE}? And then", ""),
        (f"a</think>b<think>{MOVE}", ""),
    ],
)
def test_an_action_stands_after_the_thought_that_the_prompt_opened(byte_tokenizer, reply, masked_text):
    assert masked(reply, byte_tokenizer, thinking=True)[1] == masked_text
    with pytest.raises(ParseError) if not masked_text else nullcontext():
        assert parse_move_or_answer(f"<think>\n{reply}") == {"answer": "B"}


def test_what_was_read_may_be_shorter_than_a_guess(byte_tokenizer):
    bounds = {"min_tokens": 80, "max_tokens": 100}
    assert masked(f"So {MOVE}", byte_tokenizer, **bounds) == ("brace_depth", MOVE)
    assert masked('So {"answer": 3}', byte_tokenizer, **bounds) == ("brace_depth", '{"answer": 3}')
    assert masked('So {"action": "left"}', byte_tokenizer, **bounds) == ("brace_depth", '{"action": "left"}')
    assert masked('So {"note": 3}', byte_tokenizer, **bounds)[0] == "failed"
    assert masked('So {"action": 3}', byte_tokenizer, **bounds)[0] == "failed"


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ('I go {"rotation_angle_degrees": -30, "forw', '{"rotation_angle_degrees": -30, "forw'),
        ('{stray "quote\n{"rotation_angle_degrees": 3\n', '{"rotation_angle_degrees": 3'),
        ('{"rotation_angle_degrees": 3, "why": {"a": "b', '{"rotation_angle_degrees": 3, "why": {"a": "b'),
        ("then {'forward_meters': 1, 'rot<|im_end|>", "{'forward_meters': 1, 'rot"),
        ('so {"answer": "B', '{"answer": "B'),
    ],
)
def test_regex_finds_what_was_cut_off(byte_tokenizer, reply, action):
    assert masked(reply, byte_tokenizer) == ("regex", action)


def test_last_n_runs_from_the_first_sign_to_the_end(byte_tokenizer):
    reply = "so rotation_angle_degrees: 3, forward_meters: 1<|im_end|>"
    assert masked(reply, byte_tokenizer) == ("last_n", "rotation_angle_degrees: 3, forward_meters: 1")
    assert masked("I go {now", byte_tokenizer) == ("last_n", "{now")


def test_last_n_is_widened_and_cut_to_the_range(byte_tokenizer):
    assert masked("I go {now", byte_tokenizer, min_tokens=6) == ("last_n", "o {now")
    assert masked("I go {now", byte_tokenizer, max_tokens=3) == ("last_n", "now")


def test_matches_outside_the_range_fall_through(byte_tokenizer):
    assert masked(MOVE, byte_tokenizer, max_tokens=len(MOVE)) == ("brace_depth", MOVE)
    assert masked(MOVE, byte_tokenizer, max_tokens=len(MOVE) - 1) == ("last_n", MOVE[1:])
    assert masked('so {"a":1} ok', byte_tokenizer, min_tokens=10) == ("last_n", '{"a":1} ok')
    assert masked('{"answer": "' + "B" * 50, byte_tokenizer, max_tokens=20) == ("last_n", "B" * 20)


@pytest.mark.parametrize("reply", ["", "<|im_end|>", "I give up.<|im_end|>", "the answer is B"])
def test_no_sign_of_an_action_fails_with_an_empty_mask(byte_tokenizer, reply):
    assert masked(reply, byte_tokenizer) == ("failed", "")


def test_a_reply_shorter_than_the_range_fails(byte_tokenizer):
    assert masked("{go", byte_tokenizer, min_tokens=4) == ("failed", "")


def test_range_defaults_to_ten_to_a_hundred(byte_tokenizer):
    for reply, method in (('{"a":1}', "failed"), ('{"abcd":1}', "brace_depth"), (f'{{"a":{"1" * 100}}}', "last_n")):
        assert mask_action_tokens(byte_tokenizer.encode(reply), byte_tokenizer).method == method


def test_tokens_that_overlap_the_action_count_whole(bpe_tokenizer):
    ids = bpe_tokenizer.encode('so {"answer": "B"}} {{"note', add_special_tokens=False)
    table = token_bytes(bpe_tokenizer)
    touching = [table[id] for id, hit in zip(ids, mask_action_tokens(ids, bpe_tokenizer, **WIDE).mask) if hit]
    assert b'{"answer": "B"}' in b"".join(touching)
    assert touching[-1].count(b"}") == 2
    assert b'{"answer": "B"}' not in b"".join(touching[1:])
    assert b'{"answer": "B"}' not in b"".join(touching[:-1])


def test_special_tokens_inside_the_action_never_count(byte_tokenizer):
    ids = byte_tokenizer.encode(f"{MOVE[:20]}<|im_end|>{MOVE[20:]}<|endoftext|>", add_special_tokens=False)
    mask = mask_action_tokens(ids, byte_tokenizer, **WIDE).mask
    special = np.isin(ids, byte_tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]))
    assert special.sum() == 2
    assert (mask == ~special).all()


def test_ids_beyond_the_vocabulary_mean_nothing(byte_tokenizer):
    ids = [*byte_tokenizer.encode(MOVE, add_special_tokens=False), 10**6, -100]
    found = mask_action_tokens(np.array(ids), byte_tokenizer, **WIDE)
    assert found.mask.tolist() == [True] * len(MOVE) + [False, False]


def test_endless_braces_are_read_in_one_pass(byte_tokenizer):
    brace = byte_tokenizer.convert_tokens_to_ids("{")
    assert mask_action_tokens([brace] * 20_000, byte_tokenizer).method == "last_n"


@pytest.mark.parametrize(("least", "most"), [(0, 5), (6, 5)])
def test_impossible_ranges_are_refused(byte_tokenizer, least, most):
    with pytest.raises(ConfigError, match="need 1 <= min_tokens <= max_tokens"):
        mask_action_tokens([], byte_tokenizer, min_tokens=least, max_tokens=most)


WORDS = st.text(alphabet=st.characters(exclude_characters="{}", exclude_categories=["Cs"]), max_size=30)


@given(
    reasoning=WORDS,
    extra=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.text(), max_size=2),
    angle=st.floats(-180, 180),
    junk=WORDS,
)
def test_generated_reply_is_masked_on_exactly_its_json(byte_tokenizer, reasoning, extra, angle, junk):
    action = json.dumps({"rotation_angle_degrees": angle, "forward_meters": 1, **extra})
    table = token_bytes(byte_tokenizer)
    # one id a byte, so that no normaliser or added token can move the boundary
    id_of = {piece[0]: id for id, piece in enumerate(table) if len(piece) == 1}
    ids = [id_of[byte] for byte in f"{reasoning}{action}{junk}".encode()]
    found = mask_action_tokens(ids, byte_tokenizer, **WIDE)
    assert found.method == "brace_depth"
    assert b"".join(table[id] for id, hit in zip(ids, found.mask) if hit) == action.encode()


@given(reasoning=WORDS, angle=st.integers(-180, 180), junk=WORDS)
def test_mask_and_parser_agree_on_the_action(bpe_tokenizer, reasoning, angle, junk):
    action = f'{{"rotation_angle_degrees": {angle}, "forward_meters": 0.5}}'
    ids = bpe_tokenizer.encode(reasoning + action + junk, add_special_tokens=False)
    mask = mask_action_tokens(ids, bpe_tokenizer, **WIDE).mask
    spelled = b"".join(token_bytes(bpe_tokenizer)[id] for id, hit in zip(ids, mask) if hit)
    assert action.encode() in spelled
    assert parse_action(spelled.decode(errors="replace"))["rotation_angle_degrees"] == angle


@given(ids=st.lists(st.integers(-5, 500), max_size=60), least=st.integers(1, 20), width=st.integers(0, 40))
def test_any_stream_gives_a_mask_within_the_range(bpe_tokenizer, ids, least, width):
    found = mask_action_tokens(ids, bpe_tokenizer, min_tokens=least, max_tokens=least + width)
    count = int(found.mask.sum())
    assert found.mask.shape == (len(ids),)
    assert count == 0 if found.method == "failed" else least <= count <= least + width


@given(reply=st.text(alphabet='{}" \\\n:,1arotation_angle_degrees', max_size=60))
def test_readable_actions_are_always_found_by_brace_depth(byte_tokenizer, reply):
    try:
        parse_action(reply)
    except ParseError:
        return
    assert masked(reply, byte_tokenizer)[0] == "brace_depth"


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
