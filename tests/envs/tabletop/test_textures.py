import numpy as np
import pytest

from lookact.envs.tabletop.textures import PATTERNS, SIZE, paint

BLACK, WHITE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_blends_its_two_colours_and_is_the_same_every_time(pattern):
    image = paint(pattern, (0.2, 0.4, 0.6), (0.4, 0.6, 0.8), 3)
    assert image.shape == (SIZE, SIZE, 3)
    assert image.min() >= 51
    assert image.max() <= 204
    assert image.std() > 1
    assert np.array_equal(image, paint(pattern, (0.2, 0.4, 0.6), (0.4, 0.6, 0.8), 3))


def test_checks_are_half_and_half():
    assert paint("checks", BLACK, WHITE, 0).mean() == pytest.approx(127.5)
