import copy

import pytest
import torch

from lookact.models.vla import folded_dinov2 as folded
from lookact.models.vla.encoders import (
    DEVIATION,
    MEAN,
    VisionEncoder,
    VisionSpec,
    open_dinov2,
    set_finetune,
    tiny_dinov2,
)
from lookact.models.vla.folded_dinov2 import FoldedDinov2, foldable

COLOURS = torch.tensor([MEAN, DEVIATION])


def shaken(*, size: int = 32, trained_size: int = 32, **changes):
    """A DINOv2 in which no weight is the zero or the one it begins with, so that each of them matters."""
    config = tiny_dinov2(hidden=64, layers=2, image_size=trained_size, patch=8)
    for name, value in changes.items():
        setattr(config, name, value)
    encoder = open_dinov2("tiny", config, 0)
    stream = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=stream))
    return encoder


def frames(rows: int = 3, size: int = 32) -> torch.Tensor:
    return torch.randint(0, 256, (rows, size, size, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@torch.no_grad()
def patches_by_modules(encoder, seen: torch.Tensor) -> torch.Tensor:
    pixels = ((seen.float() / 255 - COLOURS[0]) / COLOURS[1]).permute(0, 3, 1, 2)
    return encoder(pixel_values=pixels).last_hidden_state[:, 1:]


@pytest.mark.parametrize("changes", [{}, {"qkv_bias": False}, {"trained_size": 64}])
def test_the_folded_encoder_tells_what_its_modules_tell(changes):
    encoder = shaken(**changes)
    found = FoldedDinov2(encoder, COLOURS, 32)(frames())
    torch.testing.assert_close(found, patches_by_modules(encoder, frames()), atol=2e-5, rtol=1e-4)


def test_frames_go_through_in_portions_as_they_would_together(monkeypatch):
    encoder_folded = FoldedDinov2(shaken(), COLOURS, 32)
    together = encoder_folded(frames(5))
    sizes = []
    monkeypatch.setattr(folded, "TOKENS_PER_PASS", 2 * 17)
    monkeypatch.setattr(
        FoldedDinov2, "_encode", lambda self, part, see=FoldedDinov2._encode: sizes.append(len(part)) or see(self, part)
    )
    torch.testing.assert_close(encoder_folded(frames(5)), together)
    assert sizes == [2, 2, 1]


def test_only_a_plain_dinov2_folds():
    assert foldable(shaken())
    assert not foldable(shaken(use_swiglu_ffn=True))
    assert not foldable(shaken().double())
    assert not foldable(set_finetune(shaken(), "lora", rank=2, seed=0))


def words() -> torch.Tensor:
    return torch.ones(len(frames()), 4)


def vision_encoder(encoder) -> VisionEncoder:
    return VisionEncoder(
        VisionSpec(image_size=32, patch=8, hidden=64, layers=2, pool_queries=3),
        encoder,
        ("head",),
        text_width=4,
        seed=0,
    )


def test_frozen_eyes_see_what_learning_ones_see():
    learning, frozen = vision_encoder(shaken()), vision_encoder(shaken())
    frozen.requires_grad_(False)
    with torch.no_grad():
        seen = learning({"head": frames()}, words())["head"]
    torch.testing.assert_close(frozen({"head": frames()}, words())["head"], seen, atol=2e-5, rtol=1e-4)


def test_frozen_eyes_follow_weights_that_are_loaded_or_written():
    encoder_folded, other = (
        vision_encoder(shaken()),
        vision_encoder(open_dinov2("tiny", tiny_dinov2(hidden=64, layers=2, image_size=32, patch=8), 3)),
    )
    encoder_folded.requires_grad_(False)
    before = encoder_folded.features({"head": frames()}, words())["head"]
    encoder_folded.load_state_dict(other.state_dict())
    loaded = encoder_folded.features({"head": frames()}, words())["head"]
    torch.testing.assert_close(loaded, other({"head": frames()}, words())["head"], atol=2e-5, rtol=1e-4)
    assert not torch.allclose(before, loaded, atol=1e-2)
    with torch.no_grad():
        encoder_folded.encoder.layernorm.bias.add_(1.0)
    assert not torch.allclose(encoder_folded.features({"head": frames()}, words())["head"], loaded, atol=1e-2)


def test_a_copy_of_frozen_eyes_has_weights_of_its_own():
    encoder_folded = vision_encoder(shaken())
    encoder_folded.requires_grad_(False)
    before = encoder_folded.features({"head": frames()}, words())["head"]
    twin = copy.deepcopy(encoder_folded)
    twin.requires_grad_(True)
    with torch.no_grad():
        twin.encoder.layernorm.bias.add_(1.0)
    assert encoder_folded.frozen
    assert not twin.frozen
    torch.testing.assert_close(encoder_folded.features({"head": frames()}, words())["head"], before)
