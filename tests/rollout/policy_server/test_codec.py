"""Messages there and back, and what is refused before it takes memory."""

import io

import numpy as np
import pytest
from PIL import Image

from lookact.serving.limits import Refused


def unpack(data):
    from lookact.rollout.policy_server.app import LIMITS
    from lookact.rollout.policy_server.codec import unpack

    return unpack(data, LIMITS)


@pytest.mark.parametrize("binary_names", [True, False])
def test_values_come_back_to_the_bit(binary_names):
    from lookact.rollout.policy_server.codec import pack

    arrays = {
        "image": np.arange(24, dtype=np.uint8).reshape(2, 4, 3),
        "flag": np.array(True),
        "many": np.linspace(0, 1, 5),
        "none": np.zeros((0, 3), np.int64),
    }
    found = unpack(pack({**arrays, "text": "go", "number": np.float32(0.1)}, binary_names=binary_names))
    assert found.pop("text") == "go"
    assert found.pop("number") == np.float32(0.1)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_pictures_arrive_as_files_too():
    import msgpack

    pixels, file = np.arange(48, dtype=np.uint8).reshape(4, 4, 3), io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    sent = {"__image__": True, "format": "png", "data": file.getvalue(), "shape": [4, 4, 3]}
    raw = {"__image__": True, "format": "raw", "data": pixels.tobytes(), "dtype": "|u1", "shape": [4, 4, 3]}
    for found in unpack(msgpack.packb([sent, raw])):
        np.testing.assert_array_equal(found, pixels)


def array(**changes):
    return {"__ndarray__": True, "data": b"\0" * 4, "dtype": "|u1", "shape": [2, 2]} | changes


def picture(side, files=1):
    file = io.BytesIO()
    Image.new("RGB", (side, side)).save(file, "PNG")
    return [{"__image__": True, "format": "png", "data": file.getvalue()}] * files


LIES = {
    "4 bytes for an array": array(shape=[2**40]),
    "the shape \\[-4\\]": array(shape=[-4]),
    "the shape \\[1, 1": array(shape=[1] * 9),
    "the shape True": array(shape=True),
    "an array of \\|O": array(dtype="|O"),
    "an array of >f4": array(dtype=">f4", shape=[1]),
    "an array of \\['os'": array(dtype=["os"]),
    "an array of the shape": array(data="text"),
    "a number of <f4 that is a list": {"__npgeneric__": True, "dtype": "<f4", "data": []},
    "has more than 2097152 pixels": picture(2048),
    "too many pictures or pixels": picture(16, files=9),
    "a picture is no file": {"__image__": True, "format": "png", "data": "x"},
    "an image could not be read": {"__image__": True, "format": "png", "data": b"GIF89a"},
    "more than 16384 values": [[[]] * 200] * 200,
    "the message has more than 16384 values": [["ab"] * 200] * 100,
    "no msgpack of numbers.*(exceeds|max)": [0] * 257,
    "no msgpack of numbers": {1: "a number for a name"},
}


@pytest.mark.parametrize("told", LIES)
def test_what_lies_is_refused_in_one_line(told):
    import msgpack

    with pytest.raises(Refused, match=told) as refused:
        unpack(msgpack.packb(LIES[told]))
    assert "\n" not in str(refused.value)


def test_torn_and_foreign_bytes_are_refused():
    import msgpack

    for data in (
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xa1\xff",
        msgpack.packb([1])[:-1],
        b"\x80\x80",
    ):
        with pytest.raises(Refused, match="no msgpack"):
            unpack(data)
    with pytest.raises(Refused, match="extension type 42"):
        unpack(msgpack.packb(msgpack.ExtType(42, b"x")))


def test_an_object_does_not_travel():
    from lookact.rollout.policy_server.codec import pack

    with pytest.raises(TypeError, match="does not travel"):
        pack({"array": np.array([object()])}, binary_names=True)
