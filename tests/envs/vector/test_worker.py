import numpy as np
import pytest
from gymnasium import spaces

from lookact.envs.vector.worker import parts_of, share
from lookact.errors import EnvError


def test_arrays_and_texts_are_told_apart():
    box = spaces.Box(0, 1, (3,), np.float32)
    boxes, texts = parts_of(spaces.Dict({"state": box, "words": spaces.Text(5)}))
    assert boxes == {"state": box}
    assert texts == ("words",)
    assert parts_of(box) == ({"state": box}, ())
    with pytest.raises(EnvError, match="door"):
        parts_of(spaces.Dict({"door": spaces.Discrete(2)}))


def test_two_views_of_shared_memory_are_one():
    shared = share((2, 3), np.float32)
    first, second = shared.array(), shared.array()
    first[1, 2] = 7
    assert second.tolist() == [[0, 0, 0], [0, 0, 7]]
