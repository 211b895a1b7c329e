import numpy as np
import pytest
import torch

from lookact.models.vlm.images import fit_image, fits
from lookact.models.vlm.policy import ChatVLM


def pictures(*shapes: tuple[int, int]) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in shapes]


@pytest.mark.parametrize("shapes", [[(96, 96)] * 3, [(64, 96), (96, 64), (96, 64)], [(32, 32)]])
def test_fast_path_equals_the_stock_processor(chat: ChatVLM, shapes: list[tuple[int, int]]) -> None:
    images = pictures(*shapes)
    assert all(fits(chat.image_processor, *shape) for shape in shapes)
    pixels, grids = chat.encode_images(images)
    stock = chat.image_processor(images=images, return_tensors="pt")
    torch.testing.assert_close(pixels, stock["pixel_values"], rtol=1e-5, atol=1e-6)
    assert torch.equal(grids, stock["image_grid_thw"])


def test_odd_sizes_are_resized_as_the_stock_processor_does(chat: ChatVLM) -> None:
    images = pictures((96, 96), (200, 130), (70, 40), (96, 96))
    pixels, grids = chat.encode_images(images)
    stock = chat.image_processor(images=images, return_tensors="pt")
    torch.testing.assert_close(pixels, stock["pixel_values"], rtol=1e-5, atol=1e-6)
    assert torch.equal(grids, stock["image_grid_thw"])


def test_one_token_per_32_by_32_pixels(chat: ChatVLM) -> None:
    _, grids = chat.encode_images(pictures((96, 96), (32, 64)))
    assert chat.image_token_counts(grids) == [9, 2]


def test_no_images(chat: ChatVLM) -> None:
    pixels, grids = chat.encode_images([])
    assert pixels.shape == (0, 1536)
    assert grids.shape == (0, 3)
    assert chat.image_token_counts(grids) == []


def test_a_fitted_image_is_what_the_processor_would_have_made_of_it(chat: ChatVLM) -> None:
    for image in pictures((96, 96), (200, 130), (33, 70)):
        fitted = fit_image(chat.image_processor, image)
        assert fitted.dtype == np.uint8
        assert fits(chat.image_processor, *fitted.shape[:2])
        for one, other in zip(chat.encode_images([image]), chat.encode_images([fitted])):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
