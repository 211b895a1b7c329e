import base64
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from lookact.judges.client import encode_png
from lookact.judges.server.prompts import (
    decode_image,
    decode_messages,
    decoded_bytes,
    image_bytes,
    make_prompts,
    open_image,
    open_messages,
    token_limit,
)
from lookact.judges.server.schema import (
    ChatMessage,
    ChatRequest,
    GenerateRequest,
    ImagePart,
    ImageUrl,
    ImageUrlPart,
    TextPart,
)
from lookact.serving.limits import Limits, Refused

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
    assert decoded_bytes(opened) == (2 * 32 * 32 * 3, 8 * 32 * 32)
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
    plain = make_prompts(GenerateRequest([ChatMessage("user", "hi")]), ())[0]
    assert (plain.temperature, plain.top_p, plain.max_tokens) == (0.0, 0.9, 512)
    chat = ChatRequest([ChatMessage("user", "hi")], temperature=0.7, top_p=0.5, seed=3, max_tokens=9)
    prompt = make_prompts(chat, ())[0]
    assert (prompt.temperature, prompt.top_p, prompt.seed, prompt.max_tokens) == (0.7, 0.5, 3, 9)
    assert token_limit(ChatRequest([ChatMessage("user", "hi")], max_completion_tokens=4)) == 4


def test_without_a_seed_every_request_draws_its_own():
    request = GenerateRequest([ChatMessage("user", "hi")], temperature=1.0)
    assert make_prompts(request, ())[0].seed != make_prompts(request, ())[0].seed


IMAGE_LIMITS = Limits(image_bytes=100_000, image_pixels=1000 * 1000)


def png_header(width, height):
    """A PNG that claims a size and holds next to nothing."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")


def as_file(image, kind, **options):
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind, **options)
    return file.getvalue()


def refusal(data):
    with pytest.raises(Refused) as caught:
        decode_image(open_image(data, IMAGE_LIMITS))
    return caught.value


@pytest.mark.parametrize("prefix", ["", "data:image/png;base64,", "data:image/x-whatever;base64,"])
def test_a_data_url_or_bare_base64_is_read(images, prefix):
    data = as_file(images[0], "PNG")
    encoded = prefix + base64.b64encode(data).decode()
    assert image_bytes(encoded, IMAGE_LIMITS) == data
    np.testing.assert_array_equal(decode_image(open_image(data, IMAGE_LIMITS)), images[0])


def test_line_breaks_in_base64_are_fine():
    assert image_bytes(base64.encodebytes(b"x" * 100).decode(), IMAGE_LIMITS) == b"x" * 100


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_other_formats_are_decoded(images, kind):
    assert decode_image(open_image(as_file(images[0], kind), IMAGE_LIMITS)).shape == (32, 32, 3)


def test_grey_and_transparent_pictures_become_rgb():
    grey, clear = np.full((8, 8), 7, dtype=np.uint8), np.full((8, 8, 4), 9, dtype=np.uint8)
    assert decode_image(open_image(as_file(grey, "PNG"), IMAGE_LIMITS)).tolist() == np.full((8, 8, 3), 7).tolist()
    assert decode_image(open_image(as_file(clear, "PNG"), IMAGE_LIMITS)).tolist() == np.full((8, 8, 3), 9).tolist()


@pytest.mark.parametrize("source", ["http://127.0.0.1/x.png", "file:///etc/passwd", "data:text/html;base64,AAAA"])
def test_links_are_not_followed(source):
    with pytest.raises(Refused, match="fetches no links") as caught:
        image_bytes(source, IMAGE_LIMITS)
    assert caught.value.status == 422


@pytest.mark.parametrize("broken", ["not base64!", "AAA", "data:image/png;base64,A*==", "é" * 8])
def test_broken_base64_is_refused(broken):
    with pytest.raises(Refused, match="base64") as caught:
        image_bytes(broken, IMAGE_LIMITS)
    assert caught.value.status == 422


def test_a_file_too_large_is_refused_before_it_is_decoded():
    with pytest.raises(Refused) as caught:
        image_bytes("A" * 200_000, IMAGE_LIMITS)
    assert caught.value.status == 413


@pytest.mark.parametrize(("width", "height"), [(50_000, 50_000), (1001, 1000), (2**31 - 1, 2**31 - 1)])
def test_an_image_bomb_is_refused_by_its_header(width, height):
    assert refusal(png_header(width, height)).status == 413


def test_a_header_without_its_pixels_is_refused():
    assert refusal(png_header(900, 900)).status == 422


def test_a_picture_narrower_than_the_model_takes_is_refused():
    assert refusal(png_header(1, 201)).status == 422
    assert refusal(png_header(0, 10)).status == 422


@pytest.mark.parametrize("data", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"GIF89a" + b"\0" * 50, b"%PDF-1.4"])
def test_what_is_no_picture_is_refused(data):
    assert refusal(data).status == 422


def test_a_torn_file_is_refused(images):
    for kind in ("PNG", "JPEG", "WEBP"):
        data = as_file(np.tile(images[0], (4, 4, 1)), kind)
        assert refusal(data[: len(data) // 2]).status == 422


def test_images_are_bounded_together_and_let_go_of_once_decoded(images):
    messages = [user(picture(images[0]), picture(images[1]))]
    opened = open_messages(messages, Limits(request_pixels=2 * 32 * 32))
    decode_messages(opened)
    with pytest.raises(ValueError, match="closed"):
        opened[0][1][0].load()
    with pytest.raises(Refused, match="pixels together"):
        open_messages(messages, Limits(request_pixels=2 * 32 * 32 - 1))
