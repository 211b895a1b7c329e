import numpy as np
import pytest
import torch

from lookact.algorithms.vision_pretraining import dense_label_loss, make_head, pretrain_vision, targets
from lookact.envs.rooms.pretraining_images import PATCH, LabelledImage

SIDE = 4
"""Patches a side: pictures of 64 pixels, 2x2 visual tokens of 2x2 patches."""


def marked(row, column, *, kind=0, kinds=2, near=0.0):
    """A black picture with one white patch, which shows an object of this kind."""
    rgb = np.zeros((SIDE * PATCH, SIDE * PATCH, 3), np.uint8)
    rgb[row * PATCH : (row + 1) * PATCH, column * PATCH : (column + 1) * PATCH] = 255
    coverage = np.zeros((SIDE, SIDE, kinds), np.float32)
    coverage[row, column, kind] = 1.0
    inverse_depth = np.full((SIDE, SIDE), near, np.float32)
    inverse_depth[row, column] = 1.0
    return LabelledImage(rgb, coverage, inverse_depth)


@pytest.mark.parametrize("place", [(row, column) for row in range(SIDE) for column in range(SIDE)])
def test_targets_stand_where_the_model_puts_the_patch(chat, place):
    other = marked(0, 0)
    image = marked(*place, kind=1)
    coverage, inverse_depth = targets([other, image], chat.merge)
    pixels, grids = chat.encode_images([other.rgb, image.rgb])
    # the white patch is the only one of the second picture that is not as black as the rest
    white = int((pixels.view(2, SIDE * SIDE, -1)[1].mean(-1)).argmax())
    token, patch = divmod(white, chat.merge**2)
    tokens = chat.image_token_counts(grids)[0]
    assert coverage.shape == (2 * tokens, chat.merge**2, 2)
    assert torch.nonzero(coverage[tokens:]).tolist() == [[token, patch, 1]]
    assert torch.nonzero(inverse_depth[tokens:]).tolist() == [[token, patch]]


def test_an_untrained_head_expects_little_everywhere(chat):
    image = marked(1, 2)
    head = make_head(chat, image)
    loss, metrics = dense_label_loss(chat, head, [image])
    empty, covered = np.log1p(np.exp(-3.0)), np.log1p(np.exp(3.0))
    wanted = (31 * empty + covered) / 16
    assert float(metrics["loss/patch_labels"]) == pytest.approx(wanted, rel=1e-5)
    # inverse_depth is read off as it is: -3 against 1 in one patch and 0 in fifteen
    assert float(metrics["loss/inverse_depth"]) == pytest.approx((16 + 15 * 9) / 16, rel=1e-5)
    assert float(loss.detach()) == pytest.approx(wanted + 4 * (16 + 15 * 9) / 16, rel=1e-5)


@pytest.mark.slow
def test_the_tower_learns_to_tell_patches_and_nothing_else_moves(chat):
    images = {i: marked(i // SIDE, i % SIDE, kind=i % 2) for i in range(16)}
    words = chat.causal.model.language_model.state_dict()
    before = {name: tensor.clone() for name, tensor in words.items()}
    told = []
    pretrain_vision(
        chat, images, total=16, epochs=60, batch_size=16, lr=4e-3, seed=0,
        report=lambda metrics, step: told.append(metrics["loss/patch_labels"]),
    )  # fmt: skip
    assert len(told) == 60
    # a constant guess of how rare each kind is, 1 patch in 32, costs 0.28 nats a patch
    assert told[-1] < 0.1 < told[0]
    assert all(torch.equal(before[name], tensor) for name, tensor in words.items())
