import pytest

from lookact.judges.client import encode_png
from lookact.judges.server.limits import Limits, Refused
from lookact.judges.server.prompts import decode_messages, decoded_bytes, make_prompt, open_messages, token_limit
from lookact.judges.server.schema import (
    ChatMessage,
    ChatRequest,
    GenerateRequest,
    ImagePart,
    ImageUrl,
    ImageUrlPart,
    TextPart,
)

LIMITS = Limits(messages=3, images=2, text_characters=20)


def user(*parts):
    return ChatMessage("user", list(parts))


def text(words):
    return TextPart("text", words)


def picture(image):
    return ImagePart("image", encode_png(image))


def status_of(messages):
    with pytest.raises(Refused) as caught:
        open_messages(messages, LIMITS)
    return caught.value.status


def test_both_forms_of_images_come_out_in_order(images):
    linked = ImageUrlPart("image_url", ImageUrl("data:image/png;base64," + encode_png(images[1])))
    opened = open_messages([ChatMessage("system", "be brief"), user(text("a"), picture(images[0]), linked)], LIMITS)
    assert decoded_bytes(opened) == 2 * 32 * 32 * 3
    system, question = decode_messages(opened)
    assert (system.role, system.parts) == ("system", ("be brief",))
    assert question.parts[0] == "a"
    assert (question.parts[1] == images[0]).all()
    assert (question.parts[2] == images[1]).all()


def test_too_much_is_refused(images):
    assert status_of([ChatMessage("user", "hi")] * 4) == 422
    assert status_of([user(*[picture(images[0])] * 3)]) == 422
    assert status_of([user(text("a" * 11), text("b" * 10))]) == 413


def test_a_lone_surrogate_is_refused():
    assert status_of([ChatMessage("user", "a\ud800")]) == 422


def test_images_belong_to_the_user(images):
    assert status_of([ChatMessage("system", [picture(images[0])])]) == 422


def test_defaults_are_greedy_and_named_values_win():
    plain = make_prompt(GenerateRequest([ChatMessage("user", "hi")]), ())
    assert (plain.temperature, plain.top_p, plain.max_tokens) == (0.0, 0.9, 512)
    chat = ChatRequest([ChatMessage("user", "hi")], temperature=0.7, top_p=0.5, seed=3, max_tokens=9)
    prompt = make_prompt(chat, ())
    assert (prompt.temperature, prompt.top_p, prompt.seed, prompt.max_tokens) == (0.7, 0.5, 3, 9)
    assert token_limit(ChatRequest([ChatMessage("user", "hi")], max_completion_tokens=4)) == 4


def test_without_a_seed_every_request_draws_its_own():
    request = GenerateRequest([ChatMessage("user", "hi")], temperature=1.0)
    assert make_prompt(request, ()).seed != make_prompt(request, ()).seed
