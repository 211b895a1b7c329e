import base64
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from lookact.judges.server.images import decode_image, image_bytes, open_image
from lookact.judges.server.limits import Limits, Refused

LIMITS = Limits(image_bytes=100_000, image_pixels=1000 * 1000)


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
        decode_image(open_image(data, LIMITS))
    return caught.value


@pytest.mark.parametrize("prefix", ["", "data:image/png;base64,", "data:image/x-whatever;base64,"])
def test_a_data_url_or_bare_base64_is_read(images, prefix):
    data = as_file(images[0], "PNG")
    encoded = prefix + base64.b64encode(data).decode()
    assert image_bytes(encoded, LIMITS) == data
    np.testing.assert_array_equal(decode_image(open_image(data, LIMITS)), images[0])


def test_line_breaks_in_base64_are_fine():
    assert image_bytes(base64.encodebytes(b"x" * 100).decode(), LIMITS) == b"x" * 100


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_other_formats_are_decoded(images, kind):
    assert decode_image(open_image(as_file(images[0], kind), LIMITS)).shape == (32, 32, 3)


def test_grey_and_transparent_pictures_become_rgb():
    grey, clear = np.full((8, 8), 7, dtype=np.uint8), np.full((8, 8, 4), 9, dtype=np.uint8)
    assert decode_image(open_image(as_file(grey, "PNG"), LIMITS)).tolist() == np.full((8, 8, 3), 7).tolist()
    assert decode_image(open_image(as_file(clear, "PNG"), LIMITS)).tolist() == np.full((8, 8, 3), 9).tolist()


@pytest.mark.parametrize("source", ["http://127.0.0.1/x.png", "file:///etc/passwd", "data:text/html;base64,AAAA"])
def test_links_are_not_followed(source):
    with pytest.raises(Refused, match="fetches no links") as caught:
        image_bytes(source, LIMITS)
    assert caught.value.status == 422


@pytest.mark.parametrize("broken", ["not base64!", "AAA", "data:image/png;base64,A*==", "é" * 8])
def test_broken_base64_is_refused(broken):
    with pytest.raises(Refused, match="base64") as caught:
        image_bytes(broken, LIMITS)
    assert caught.value.status == 422


def test_a_file_too_large_is_refused_before_it_is_decoded():
    with pytest.raises(Refused) as caught:
        image_bytes("A" * 200_000, LIMITS)
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
