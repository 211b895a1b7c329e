"""Values arrive as they left, and nothing else is read."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lookact.envs.remote.codec import DTYPES, decode, encode, from_json, to_json
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
