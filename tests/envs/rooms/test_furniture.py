import numpy as np
import pytest

from lookact.envs.rooms.furniture import KINDS, make_piece
from lookact.envs.rooms.scene import CLASSES


def test_every_class_can_be_made():
    assert set(KINDS) == set(CLASSES)


@pytest.mark.parametrize("label", CLASSES)
def test_parts_fill_the_size_whatever_is_drawn(label):
    for seed in range(20):
        piece = make_piece(label, np.random.default_rng(seed))
        low, high = piece.parts[:, 1:4], piece.parts[:, 4:7]
        width, depth, height = piece.size
        assert (low < high).all(), "every part has a volume"
        np.testing.assert_allclose(low.min(axis=0), [-width / 2, -depth / 2, 0], atol=1e-12)
        np.testing.assert_allclose(high.max(axis=0), [width / 2, depth / 2, height], atol=1e-12)
        assert (piece.parts[:, 7:] >= 0).all()
        assert (piece.parts[:, 7:] <= 255).all()
        kind = KINDS[label]
        assert kind.width[0] <= width <= kind.width[1]


def test_pieces_of_a_class_differ_in_size_and_shade():
    first, second = (make_piece("sofa", np.random.default_rng(seed)) for seed in (1, 2))
    assert first.size != second.size
    assert (first.parts[5, 7:] != second.parts[5, 7:]).any()
    # but both are green
    for piece in (first, second):
        red, green, blue = piece.parts[5, 7:]
        assert green > 1.2 * max(red, blue)
