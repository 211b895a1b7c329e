import pytest
import torch

from lookact.errors import ConfigError
from lookact.models.vla.encoders import (
    DEVIATION,
    MEAN,
    AttentionPool,
    VisionEncoder,
    VisionSpec,
    open_dinov2,
    tiny_dinov2,
)


def eyes(**changes) -> VisionEncoder:
    spec = VisionSpec(image_size=16, patch=8, hidden=32, layers=1, pool_queries=3, **changes)
    return VisionEncoder(
        spec,
        open_dinov2("tiny", tiny_dinov2(hidden=32, layers=1, image_size=16, patch=8), 0),
        ("head",),
        text_width=4,
        seed=0,
    )


def test_a_glance_tells_where_it_looks():
    glances = AttentionPool(width=4, count=1, side=2, text_width=3)
    with torch.no_grad():
        glances.keys.weight.copy_(torch.eye(4))
        glances.keys.bias.zero_()
        glances.queries.copy_(torch.tensor([[100.0, 0, 0, 0]]))
    patches = torch.zeros(1, 4, 4)
    # the patch at the lower left is the one that shows what the query asks for
    patches[0, 2, 0] = 1.0
    found = glances(patches, torch.zeros(1, 3))[0, 0]
    assert found.shape == (6,)
    torch.testing.assert_close(found[4:], torch.tensor([-0.5, 0.5]))
    # equally drawn to all patches it looks at the middle
    torch.testing.assert_close(glances(torch.zeros(1, 4, 4), torch.zeros(1, 3))[0, 0, 4:], torch.zeros(2))


def test_the_instruction_says_where_to_look():
    pool = AttentionPool(width=2, count=1, side=2, text_width=2)
    with torch.no_grad():
        pool.keys.weight.copy_(torch.eye(2))
        pool.keys.bias.zero_()
        pool.condition.weight.copy_(100 * torch.eye(2))
    # the upper left patch is of the first kind, the lower right one of the second
    patches = torch.tensor([[[1.0, 0], [0, 0], [0, 0], [0, 1]]]).expand(2, -1, -1)
    found = pool(patches, torch.eye(2))[:, 0, 2:]
    torch.testing.assert_close(found, torch.tensor([[-0.5, -0.5], [0.5, 0.5]]))


def test_colours_come_as_dinov2_was_trained_with():
    frames = torch.tensor([0, 255, 51], dtype=torch.uint8).expand(1, 16, 16, 3)
    pixels = eyes()._prepare(frames)
    expected = (torch.tensor([0.0, 1.0, 0.2]) - torch.tensor(MEAN)) / torch.tensor(DEVIATION)
    torch.testing.assert_close(pixels[0, :, 3, 7], expected)


def test_frames_of_another_size_are_brought_to_the_encoders():
    sight = eyes()
    large = torch.full((2, 40, 40, 3), 100, dtype=torch.uint8)
    small = torch.full((2, 16, 16, 3), 100, dtype=torch.uint8)
    words = torch.ones(2, 4)
    seen, same = (sight({"head": frames}, words)["head"] for frames in (large, small))
    torch.testing.assert_close(seen, same, atol=1e-5, rtol=1e-5)


def test_patches_must_fill_the_picture():
    encoder = open_dinov2("tiny", tiny_dinov2(hidden=32, layers=1, image_size=16, patch=8), 0)
    with pytest.raises(ConfigError, match="20 pixels does not fall into patches of 8"):
        VisionEncoder(VisionSpec(image_size=20), encoder, ("head",), text_width=4, seed=0)
