"""Msgpack with arrays and pictures, as openpi's and vla-eval's clients write it: bounded, nothing is ever unpickled.

An array is a map that holds `__ndarray__`, its dtype, shape and bytes; the names are bytes in openpi's form and text in
vla-eval's. vla-eval's pictures may be PNG or JPEG files under `__image__`.
"""

from __future__ import annotations

import math
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from lookact.judges.server.prompts import decode_image, open_image
from lookact.serving.limits import Limits, Refused

DTYPES = {np.dtype(name).str for name in ("bool", "float16", "float32", "float64")}
DTYPES |= {np.dtype(f"{kind}{bits}").str for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
MAX_AXES = 8
MAX_ITEMS = 256
"""Of one list or map."""


def pack(value: Any, *, binary_names: bool) -> bytes:
    """A message; `binary_names` marks arrays in openpi's way, else in vla-eval's."""

    def encode(item: Any) -> Any:
        if not isinstance(item, np.ndarray | np.generic):
            raise TypeError(f"a {type(item).__name__} does not travel")
        array = np.asarray(item)
        if array.dtype.str not in DTYPES:
            raise TypeError(f"an array of {array.dtype} does not travel")
        found = {"__ndarray__": True, "data": array.tobytes(), "dtype": array.dtype.str, "shape": list(array.shape)}
        return {name.encode(): part for name, part in found.items()} if binary_names else found

    packed: bytes = msgpack.packb(value, default=encode)
    return packed


def unpack(data: bytes, limits: Limits) -> Any:
    """The value of a message, arrays and pictures included; whatever is wrong with it is refused in one line."""
    reader = _Reader(limits)
    try:
        return msgpack.unpackb(
            data,
            object_hook=reader.mapping,
            list_hook=reader.sequence,
            ext_hook=reader.extension,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
            max_str_len=limits.text_characters,
        )
    except Refused:
        raise
    except Exception as error:
        # bytes made to do harm may fail in any way
        told = " ".join(str(error).split())[:100] or type(error).__name__
        raise Refused(422, f"the message is no msgpack of numbers, texts, lists, maps and arrays: {told}") from None


def array_bytes(value: Any) -> int:
    """What the arrays and pictures of a message take, beside the message itself."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(array_bytes, parts))


class _Reader:
    """What msgpack calls for each list and map of one message."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.values, self.images, self.pixels = limits, 0, 0, 0

    def sequence(self, items: list[Any]) -> list[Any]:
        self.count(len(items))
        return items

    def count(self, items: int) -> None:
        """A list or map and its items: a million empty ones would take hundreds of bytes each."""
        self.values += 1 + items
        if self.values > self.limits.json_tokens:
            raise Refused(413, f"the message has more than {self.limits.json_tokens} values: send arrays")

    def mapping(self, items: dict[Any, Any]) -> Any:
        self.count(len(items))
        named = {name.decode("latin-1") if isinstance(name, bytes) else name: item for name, item in items.items()}
        if "__npgeneric__" in named:
            return decode_number(named.get("dtype"), named.get("data"))
        if "__image__" in named and named.get("format") != "raw":
            return self.picture(named.get("data"))
        return decode_array(named) if "__ndarray__" in named or "__image__" in named else named

    def picture(self, data: Any) -> NDArray[np.uint8]:
        """RGB pixels (h, w, 3) of a PNG or JPEG file."""
        if not isinstance(data, bytes) or len(data) > self.limits.image_bytes:
            raise Refused(413, f"a picture is no file of at most {self.limits.image_bytes} bytes: send a smaller one")
        image = open_image(data, self.limits)
        self.images, self.pixels = self.images + 1, self.pixels + image.width * image.height
        if self.images > self.limits.images or self.pixels > self.limits.request_pixels:
            raise Refused(413, "the message has too many pictures or pixels: send fewer or smaller ones")
        return decode_image(image)

    def extension(self, code: int, data: bytes) -> Any:
        raise Refused(422, f"the message has an extension type {code}: send numbers, texts, lists, maps and arrays")


def decode_array(told: dict[str, Any]) -> NDArray[Any]:
    """An array whose bytes are as many as its dtype and shape say."""
    kind, shape, data = known_dtype(told.get("dtype")), told.get("shape"), told.get("data")
    whole = isinstance(shape, list) and len(shape) <= MAX_AXES and all(type(n) is int and n >= 0 for n in shape)
    if not whole or not isinstance(shape, list) or not isinstance(data, bytes):
        raise Refused(422, f"an array of the shape {str(shape)[:80]}: give a list of sizes, and its bytes")
    if len(data) != math.prod(shape) * kind.itemsize:
        raise Refused(422, f"{len(data)} bytes for an array of {kind.str} {shape}")
    return np.frombuffer(data, dtype=kind).reshape(shape)


def decode_number(dtype: Any, number: Any) -> Any:
    """One of numpy's numbers."""
    kind = known_dtype(dtype)
    if not isinstance(number, bool | int | float):
        raise Refused(422, f"a number of {dtype} that is a {type(number).__name__}")
    return kind.type(number)


def known_dtype(name: Any) -> np.dtype[Any]:
    if not isinstance(name, str) or name not in DTYPES:
        raise Refused(422, f"an array of {str(name)[:40]}: send numbers in this machine's byte order, or booleans")
    return np.dtype(name)
