import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookact.errors import TokenMismatch
from lookact.text.chat import CHAT_TEMPLATE, expand_images, following, opening


def part(text, images):
    return [{"type": "image"}] * images + [{"type": "text", "text": text}]


def render(tokenizer, messages, *, reply=True):
    return tokenizer.apply_chat_template(
        messages, chat_template=CHAT_TEMPLATE, tokenize=False, add_generation_prompt=reply
    )


def test_opening_by_hand():
    assert opening("", "Where?", 1) == (
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Where?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert opening("Be brief.", "Hi", 0) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_following_closes_an_unfinished_reply():
    turn = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert following("Hi", 0, closed=True) == "\n" + turn
    assert following("Hi", 0, closed=False) == "<|im_end|>\n" + turn


TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    system=TEXTS,
    turns=st.lists(st.tuples(TEXTS, st.integers(0, 3), TEXTS, st.booleans()), min_size=1, max_size=4),
)
def test_piecewise_rendering_equals_the_template_on_the_whole(byte_tokenizer, system, turns):
    messages = [{"role": "system", "content": [{"type": "text", "text": system}]}] if system else []
    written, closed = "", True
    for index, (text, images, reply, finished) in enumerate(turns):
        written += following(text, images, closed=closed) if index else opening(system, text, images)
        messages.append({"role": "user", "content": part(text, images)})
        assert written == render(byte_tokenizer, messages)
        written, closed = written + reply + ("<|im_end|>" if finished else ""), finished
        messages.append({"role": "assistant", "content": reply})
    tail = "\n" if closed else "<|im_end|>\n"
    assert written + tail == render(byte_tokenizer, messages, reply=False)


def test_template_takes_strings_and_drops_images_of_the_system(byte_tokenizer):
    pictured = [{"type": "image"}, {"type": "text", "text": "Be brief."}]
    messages = [{"role": "system", "content": pictured}, {"role": "user", "content": "Hi"}]
    assert render(byte_tokenizer, messages) == opening("Be brief.", "Hi", 0)


def test_template_reads_image_urls_in_order(byte_tokenizer):
    content = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}, {"type": "image"}]
    image = "<|vision_start|><|image_pad|><|vision_end|>"
    rendered = render(byte_tokenizer, [{"role": "user", "content": content}], reply=False)
    assert rendered == f"<|im_start|>user\na{image}{image}<|im_end|>\n"


def test_tool_results_render_as_one_user_turn(byte_tokenizer):
    tools = [{"role": "tool", "content": "a"}, {"role": "tool", "content": "b"}]
    assert render(byte_tokenizer, tools) == (
        "<|im_start|>user\n<tool_response>\na\n</tool_response>\n<tool_response>\nb\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_expand_images_repeats_each_placeholder_its_own_number_of_times():
    ids = expand_images([5, 9, 6, 9, 7], 9, [2, 3])
    assert ids.tolist() == [5, 9, 9, 6, 9, 9, 9, 7]
    assert ids.dtype == np.int64
    assert expand_images([], 9, []).tolist() == []


@pytest.mark.parametrize("counts", [[], [1, 1]])
def test_expand_images_refuses_other_numbers_of_images(counts):
    with pytest.raises(TokenMismatch, match="1 image placeholders"):
        expand_images([5, 9], 9, counts)


def test_placeholders_become_single_tokens(byte_tokenizer):
    ids = byte_tokenizer.encode(opening("", "x", 2), add_special_tokens=False)
    assert ids.count(byte_tokenizer.convert_tokens_to_ids("<|image_pad|>")) == 2
