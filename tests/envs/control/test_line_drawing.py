import numpy as np

from lookact.envs.control.line_drawing import Sketch

RED = (200, 0, 0)


def test_a_disc_covers_its_area():
    sketch = Sketch(100)
    sketch.line((0.0, 0.0), (0.0, 0.0), width=0.5, colour=(0, 0, 0))
    covered = 1.0 - sketch.pixels[..., 0] / 255
    # radius 0.5 of a side of 2
    assert abs(covered.mean() - np.pi * 0.25 / 4) < 0.002


def test_up_is_up_and_right_is_right():
    sketch = Sketch(50)
    sketch.line((0.8, 0.8), (0.8, 0.8), width=0.1, colour=RED)
    assert tuple(sketch.pixels[5, 44]) == RED
    assert (sketch.pixels[25:, :25] == 255).all()


def test_a_line_is_as_wide_as_told():
    sketch = Sketch(64)
    sketch.line((-2.0, 0.0), (2.0, 0.0), width=0.25, colour=(0, 0, 0))
    assert (255 - sketch.pixels[:, 30, 0].astype(int)).sum() / 255 * 2 / 64 == np.float64(0.5)
