import numpy as np
import pytest
import torch

from lookact.algorithms.image_regression import make_head, regress_images, regression_loss, standardise
from lookact.errors import DataError


def squares(count, seed=0):
    """Black pictures (n, 64, 64, 3) with a white square, and where it is (n, 2)."""
    places = np.random.default_rng(seed).integers(0, 48, (count, 2))
    images = np.zeros((count, 64, 64, 3), np.uint8)
    for image, (top, left) in zip(images, places):
        image[top : top + 16, left : left + 16] = 255
    return images, places.astype(np.float64)


def test_columns_are_put_on_one_scale_and_constants_say_nothing():
    scaled = standardise(np.array([[1.0, 5.0], [3.0, 5.0]]))
    assert scaled.tolist() == [[-1.0, 0.0], [1.0, 0.0]]


def test_an_untaught_head_is_wrong_by_one_deviation(chat):
    images, places = squares(16)
    targets = torch.from_numpy(standardise(places))
    loss, _ = regression_loss(chat, make_head(chat, images[0], outputs=2), list(zip(images, targets)))
    assert float(loss.detach()) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.slow
def test_the_tower_learns_where_things_are_and_nothing_else_changes(chat):
    images, places = squares(64)
    tower = {id(parameter) for parameter in chat.causal.model.visual.parameters()}
    others = {name: value.clone() for name, value in chat.named_parameters() if id(value) not in tower}
    losses = []
    regress_images(
        chat, list(images), places, epochs=15, rows=16, lr=3e-3, seed=0, report=lambda m, _: losses.append(m)
    )
    assert losses[-1]["loss/vision"] < 0.3 < losses[0]["loss/vision"]
    now = dict(chat.named_parameters())
    assert all(torch.equal(now[name], value) for name, value in others.items())


def test_every_picture_needs_its_numbers(chat):
    images, places = squares(4)
    with pytest.raises(DataError, match="4 images with 3 rows"):
        regress_images(
            chat, list(images), places[:3], epochs=1, rows=2, lr=1e-3, seed=0, report=lambda metrics, step: None
        )
