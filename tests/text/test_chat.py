import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookact.errors import TokenMismatch
from lookact.text.chat import CHAT_TEMPLATE, Spelling, expand_images, write_images


def part(text, images):
    return [{"type": "image"}] * images + [{"type": "text", "text": text}]


def render(tokenizer, messages, *, reply=True):
    return tokenizer.apply_chat_template(
        messages, chat_template=CHAT_TEMPLATE, tokenize=False, add_generation_prompt=reply
    )


@pytest.fixture(scope="session")
def spelling(byte_tokenizer):
    return spelling_of(byte_tokenizer, CHAT_TEMPLATE)


def spelling_of(tokenizer, template, end="<|im_end|>"):
    def rendered(messages, reply):
        return tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=False, add_generation_prompt=reply
        )

    return Spelling(rendered, end)


def test_opening_by_hand(spelling):
    assert spelling.opening("", "Where?", 1) == (
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Where?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert spelling.opening("Be brief.", "Hi", 0) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_following_closes_an_unfinished_reply(spelling):
    turn = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert spelling.following("Hi", 0, closed=True) == "\n" + turn
    assert spelling.following("Hi", 0, closed=False) == "<|im_end|>\n" + turn


TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    system=TEXTS,
    turns=st.lists(st.tuples(TEXTS, st.integers(0, 3), TEXTS, st.booleans()), min_size=1, max_size=4),
)
def test_piecewise_rendering_equals_the_template_on_the_whole(byte_tokenizer, spelling, system, turns):
    messages = [{"role": "system", "content": [{"type": "text", "text": system}]}] if system else []
    written, closed = "", True
    for index, (text, images, reply, finished) in enumerate(turns):
        written += spelling.following(text, images, closed=closed) if index else spelling.opening(system, text, images)
        messages.append({"role": "user", "content": part(text, images)})
        assert written == render(byte_tokenizer, messages)
        written, closed = written + reply + ("<|im_end|>" if finished else ""), finished
        messages.append({"role": "assistant", "content": reply})
    tail = "\n" if closed else "<|im_end|>\n"
    assert written + tail == render(byte_tokenizer, messages, reply=False)


def test_template_takes_strings_and_drops_images_of_the_system(byte_tokenizer, spelling):
    pictured = [{"type": "image"}, {"type": "text", "text": "Be brief."}]
    messages = [{"role": "system", "content": pictured}, {"role": "user", "content": "Hi"}]
    assert render(byte_tokenizer, messages) == spelling.opening("Be brief.", "Hi", 0)


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


def test_placeholders_become_single_tokens(byte_tokenizer, spelling):
    ids = byte_tokenizer.encode(spelling.opening("", "x", 2), add_special_tokens=False)
    assert ids.count(byte_tokenizer.convert_tokens_to_ids("<|image_pad|>")) == 2


def test_images_are_spelt_out_in_their_placeholders_place():
    assert write_images("a<i>b<i>", "<i>", ["[1]", "[22]"]) == "a[1]b[22]"
    with pytest.raises(TokenMismatch, match="2 image placeholders for 1 images"):
        write_images("<i><i>", "<i>", ["[1]"])


def test_a_template_that_only_appends_passes(spelling):
    spelling.check()
    assert (spelling.thinks, spelling.reply("Yes.")) == (False, "Yes.")


def test_a_space_before_replies_is_part_of_them(byte_tokenizer):
    spaced = "{% for m in messages %}{{ m.role }}: {{ m.content[-1].text }}<|im_end|>{% endfor %}"
    spelling = spelling_of(byte_tokenizer, spaced + "{% if add_generation_prompt %}assistant:{% endif %}")
    spelling.check()
    assert spelling.reply("Yes.") == " Yes."
    assert spelling.following("Go.", 0, closed=True) == "user: Go.<|im_end|>assistant:"


def test_a_template_that_rewrites_the_past_is_refused(byte_tokenizer):
    numbered = CHAT_TEMPLATE.replace("'<|im_start|>' + message.role", "'<|im_start|>' + (loop.length | string)")
    with pytest.raises(TokenMismatch, match=r"rewrites earlier turns: it says '.*' where '.*' was sampled from"):
        spelling_of(byte_tokenizer, numbered).check()
    with pytest.raises(TokenMismatch, match="does not end a reply with <eos>"):
        spelling_of(byte_tokenizer, CHAT_TEMPLATE, end="<eos>").check()


def test_a_template_that_opens_thoughts_and_drops_those_of_the_past_passes(byte_tokenizer):
    reply = "{{- '<|im_start|>assistant\\n"
    spelling = spelling_of(byte_tokenizer, CHAT_TEMPLATE.replace(reply, reply + "<think>\\n"))
    assert spelling.thinks
    spelling.check()
    assert spelling.reply("Yes.") == "\n</think>\n\nYes."
    assert spelling.conversation("", [("One.", 0), ("Two.", 1)], ["Left."]).endswith(
        "assistant\nLeft.<|im_end|>\n<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Two.<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )
