"""Values of Python as JSON and back, to the last bit: arrays with dtype and shape, tuples, and LookAct's own records.

A JSON object with one key that begins with `$` stands for what JSON has no word for. Arrays are base64 in plain JSON;
`to_frame` puts their bytes behind it instead, which costs both sides half as much. Nothing is ever unpickled.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import math
import struct
from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.errors import EnvError
from lookact.types import Decision, Demonstration, Episode, EpisodeSpec, FloorMap, Observation, Turn

RECORDS = {cls.__name__: cls for cls in (Observation, EpisodeSpec, Demonstration, Decision, Turn, Episode, FloorMap)}
DTYPES = {"bool"} | {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
DTYPES |= {"float16", "float32", "float64"}
MAX_AXES = 8
FRAME = "application/octet-stream"
"""The media type of `to_frame`, which clients ask for."""
PART, SIZE_BYTES = "$part", 8


def encode(value: Any, where: str = "value", *, raw: bool = False) -> Any:
    """A value as what `json` writes, or with `raw` what `to_frame` does; `where` names it in an error."""
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return encode_array(np.asarray(value), where, scalar=isinstance(value, np.generic), raw=raw)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, list):
        return [encode(item, f"{where}[{number}]", raw=raw) for number, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": [encode(item, f"{where}[{number}]", raw=raw) for number, item in enumerate(value)]}
    if isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str) or key.startswith("$")]
        if odd:
            raise EnvError(f"{where} has the key {odd[0]!r}: what travels has keys of text that do not begin with $")
        return {key: encode(item, f"{where}.{key}", raw=raw) for key, item in value.items()}
    if RECORDS.get(type(value).__name__) is type(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        told = {name: encode(item, f"{where}.{name}", raw=raw) for name, item in fields.items()}
        return {f"${type(value).__name__}": told}
    raise EnvError(f"{where} is a {type(value).__name__}: arrays, numbers, texts, lists, tuples and mappings travel")


def encode_array(array: NDArray[Any], where: str, *, scalar: bool, raw: bool) -> dict[str, Any]:
    if array.dtype.name not in DTYPES:
        raise EnvError(f"{where} is an array of {array.dtype}: numbers and booleans travel")
    data = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    held = data.tobytes() if raw else base64.b64encode(data.tobytes()).decode()
    told = {"dtype": array.dtype.name, "shape": list(array.shape), "data": held}
    return {"$scalar" if scalar else "$array": told}


def decode(value: Any) -> Any:
    """What `encode` was given; whatever is not of its making raises ValueError."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if isinstance(value, memoryview):
        raise ValueError("bytes that are no array's")
    if not isinstance(value, dict):
        return value
    tag = next(iter(value)) if len(value) == 1 else ""
    if not tag.startswith("$"):
        if any(key.startswith("$") for key in value):
            raise ValueError(f"{', '.join(value)[:80]}: a key that begins with $ stands alone")
        return {key: decode(item) for key, item in value.items()}
    return decode_tagged(tag[1:], value[tag])


def decode_tagged(tag: str, value: Any) -> Any:
    if tag in ("array", "scalar"):
        array = decode_array(value)
        if tag == "scalar" and array.ndim:
            raise ValueError(f"a scalar of shape {array.shape}")
        return array if tag == "array" else array[()]
    if tag == "tuple" and isinstance(value, list):
        return tuple(decode(item) for item in value)
    if tag == "float" and value in ("nan", "inf", "-inf"):
        return float(value)
    if tag in RECORDS and isinstance(value, dict):
        try:
            return RECORDS[tag](**{name: decode(item) for name, item in value.items()})
        except TypeError as error:
            raise ValueError(str(error)) from error
    raise ValueError(f"${tag[:40]} is not known, or holds what it should not")


def decode_array(told: Any) -> NDArray[Any]:
    """An array whose bytes are as many as its dtype and shape say."""
    if not isinstance(told, dict) or told.keys() != {"dtype", "shape", "data"}:
        raise ValueError("an array has dtype, shape and data")
    dtype, shape, data = told["dtype"], told["shape"], told["data"]
    if dtype not in DTYPES:
        raise ValueError(f"an array of {str(dtype)[:40]}")
    whole = isinstance(shape, list) and len(shape) <= MAX_AXES and all(type(n) is int and n >= 0 for n in shape)
    if not whole or not isinstance(data, str | memoryview):
        raise ValueError(f"an array of the shape {str(shape)[:80]}")
    try:
        raw = base64.b64decode(data, validate=True) if isinstance(data, str) else data
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"an array whose data is no base64: {error}") from error
    kind = np.dtype(dtype)
    if len(raw) != math.prod(shape) * kind.itemsize:
        raise ValueError(f"{len(raw)} bytes for an array of {dtype} {shape}")
    # a copy, so that it can be written to as the environment's own can
    return np.frombuffer(bytearray(raw), dtype=kind.newbyteorder("<")).astype(kind, copy=False).reshape(shape)


def to_json(value: Any) -> bytes:
    """Encoded JSON; a lone surrogate stays what it is."""
    return json.dumps(value, separators=(",", ":")).encode()


def from_json(data: bytes, hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """JSON's value; one nested too deeply, or with NaN, raises ValueError as any other that is torn."""
    try:
        return json.loads(data, parse_constant=refuse_constant, object_hook=hook)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def to_frame(value: Any) -> bytes:
    """What `encode` made with `raw`: number and sizes of all parts, the JSON, and the arrays' bytes in order."""
    arrays: list[bytes] = []

    def set_apart(data: bytes) -> dict[str, int]:
        arrays.append(data)
        return {PART: len(arrays) - 1}

    parts = [json.dumps(value, separators=(",", ":"), default=set_apart).encode(), *arrays]
    return b"".join([struct.pack(f"<{len(parts) + 1}Q", len(parts), *map(len, parts)), *parts])


def from_frame(data: bytes) -> Any:
    """A frame as what `decode` takes; one whose sizes are not those of its parts raises ValueError."""
    whole = memoryview(data)
    try:
        (count,) = struct.unpack_from("<Q", whole)
        if not 1 <= count <= len(whole) // SIZE_BYTES - 1:
            raise ValueError(f"a frame of {count} parts in {len(whole)} bytes")
        sizes = struct.unpack_from(f"<{count}Q", whole, SIZE_BYTES)
    except struct.error as error:
        raise ValueError(f"a frame without its sizes: {error}") from error
    ends = list(accumulate(sizes, initial=SIZE_BYTES * (count + 1)))
    if ends[-1] != len(whole):
        raise ValueError(f"a frame of {len(whole)} bytes whose parts have {ends[-1]}")
    text, *arrays = (whole[start:end] for start, end in pairwise(ends))

    def put_back(told: dict[str, Any]) -> Any:
        if PART not in told:
            return told
        place = told[PART]
        if len(told) > 1 or type(place) is not int or not 0 <= place < len(arrays):
            raise ValueError(f"a frame of {len(arrays)} arrays names {str(place)[:40]}")
        return arrays[place]

    return from_json(bytes(text), put_back)
