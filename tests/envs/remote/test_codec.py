"""Values arrive as they left, and nothing else is read."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lookact.envs.remote.codec import DTYPES, decode, encode, from_frame, from_json, to_frame, to_json
from lookact.errors import EnvError
from lookact.types import EpisodeSpec, Observation


def travel(value):
    return decode(from_json(to_json(encode(value))))


def same(a, b):
    """Equal in type, dtype, shape and bytes."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


ARRAYS = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda name: hnp.arrays(np.dtype(name), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3))
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | ARRAYS
KEYS = st.text(max_size=5).filter(lambda key: not key.startswith("$"))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=8,
)


@given(VALUES)
def test_every_value_arrives_as_it_left(value):
    assert same(value, travel(value))
    assert same(value, decode(from_frame(to_frame(encode(value, raw=True)))))


def test_a_frame_holds_the_bytes_of_its_arrays_as_they_are():
    frame = to_frame(encode([np.array([1, 2], np.uint8), np.array([3], np.uint16)], raw=True))
    assert frame.endswith(b'"data":{"$part":1}}}]' + b"\x01\x02" + b"\x03\x00")
    assert int.from_bytes(frame[:8], "little") == 3
    again = decode(from_frame(frame))
    again[0][0] = 7  # can be written to


def frame_of(text, *arrays, count=None):
    parts = [text, *arrays]
    numbers = [len(parts) if count is None else count, *map(len, parts)]
    return b"".join([*(number.to_bytes(8, "little") for number in numbers), *parts])


TORN = {
    "nothing": b"",
    "less than a number": b"1234",
    "no part": bytes(8),
    "more parts than bytes": frame_of(b"1", count=2**63),
    "a part too short": frame_of(b"1")[:-1],
    "a part too long": frame_of(b"1") + b"1",
    "no JSON": frame_of(b"{"),
    "an array that is not there": frame_of(b'{"$part":0}'),
    "an array counted from behind": frame_of(b'{"$part":-1}', b"a"),
    "an array that is no number": frame_of(b'{"$part":true}', b"a"),
    "an array with a neighbour": frame_of(b'{"$part":0,"x":1}', b"a"),
}


@pytest.mark.parametrize("frame", TORN.values(), ids=TORN)
def test_a_torn_frame_is_refused(frame):
    with pytest.raises(ValueError, match=r"frame|Expecting"):
        from_frame(frame)


def test_bytes_where_no_array_is_are_refused():
    for text in (
        b'{"$part":0}',
        b'{"a":[{"$part":0}]}',
        b'{"$tuple":{"$part":0}}',
        b'{"$array":{"$part":0}}',
        b'{"$Observation":{"$part":0}}',
    ):
        with pytest.raises(ValueError, match=r"no array|not known|an array has"):
            decode(from_frame(frame_of(text, b"a")))


def test_scalars_keep_their_type_and_records_their_fields():
    for scalar in (np.float32(0.1), np.int64(-3), np.bool_(True), np.float64(np.nan)):
        assert same(scalar, travel(scalar))
    seen = Observation("a", {"b": np.zeros((2, 2, 3), np.uint8), "a": np.ones((1, 1, 3), np.uint8)})
    again = travel(seen)
    assert list(again.images) == ["b", "a"]
    assert again.depth is None
    again.images["b"][0] = 7  # can be written to
    assert travel(EpisodeSpec("x", 1, 2**63, {"k": (1, 2)})) == EpisodeSpec("x", 1, 2**63, {"k": (1, 2)})
    big_endian = np.arange(3, dtype=">i4")
    assert travel(big_endian).tolist() == [0, 1, 2]


@pytest.mark.parametrize("value", [object(), {"a": [{1, 2}]}, {3: 1}, {"$array": 1}, np.array(["x"]), np.array([None])])
def test_what_cannot_travel_is_named(value):
    with pytest.raises(EnvError, match=r"value.*(travel)"):
        encode(value)


ARRAY = {"dtype": "uint8", "shape": [2, 2], "data": "AAAAAA=="}


@pytest.mark.parametrize(
    "told",
    [
        {"$array": ARRAY | {"shape": [2, 3]}},
        {"$array": ARRAY | {"shape": [-2, -2]}},
        {"$array": ARRAY | {"shape": [10**30, 0]}} | {"b": 1},
        {"$array": ARRAY | {"shape": [2.0, 2]}},
        {"$array": ARRAY | {"shape": [True, 4]}},
        {"$array": ARRAY | {"shape": [1] * 99}},
        {"$array": ARRAY | {"dtype": "object"}},
        {"$array": ARRAY | {"dtype": "V4"}},
        {"$array": ARRAY | {"data": "A"}},
        {"$array": ARRAY | {"data": "@@@@"}},
        {"$array": ARRAY | {"data": 7}},
        {"$array": {}},
        {"$array": None},
        {"$scalar": ARRAY},
        {"$float": "1e5"},
        {"$tuple": "ab"},
        {"$Observation": {"colour": 1}},
        {"$Observation": []},
        {"$os.system": ["true"]},
        {"$": 1},
        {"a": {"$tuple": [], "x": 1}},
    ],
)
def test_what_is_not_of_its_making_is_refused(told):
    with pytest.raises(ValueError, match=r"\w"):
        decode(told)


@pytest.mark.parametrize("data", [b"", b"{", b"NaN", b"[" * 200_000, b"\xff", b'{"a": Infinity}'])
def test_torn_json_is_refused(data):
    with pytest.raises(ValueError, match=r"\w"):
        from_json(data)
