import random

import numpy as np
import torch

from lookact.training.state import read_snapshot, rng_state, set_rng_state


def draw() -> list[float]:
    """From each global stream; gauss and normal keep a second number back, which is state too."""
    numpy_draw = float(np.random.standard_normal())  # noqa: NPY002
    return [random.gauss(0, 1), random.random(), numpy_draw, float(torch.randn(()))]


def test_global_streams_go_on_where_they_were(tmp_path):
    draw()
    torch.save({"stateful": [], "items": {}, "random": rng_state()}, tmp_path / "state.pt")
    expected = [draw() for _ in range(3)]
    assert [draw() for _ in range(3)] != expected
    set_rng_state(read_snapshot(tmp_path / "state.pt")["random"])
    assert [draw() for _ in range(3)] == expected
