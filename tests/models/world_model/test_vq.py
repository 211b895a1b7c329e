import pytest
import torch

from lookact.errors import ConfigError
from lookact.models.world_model.vq import MultiScaleVQ, VQSpec, denormalise_frames, normalise_frames, psnr
from lookact.seeding import torch_rng

SPEC = VQSpec(image_size=16, width=16, latent=4, scales=(1, 2), codes=8)


def pictures(count, seed=0):
    """Flat frames of one of four colours, with a corner of another."""
    drawn = torch.randint(4, (count, 2), generator=torch_rng(seed, "pictures"))
    colours = torch.tensor([[200, 30, 30], [30, 200, 30], [30, 30, 200], [220, 220, 220]], dtype=torch.uint8)
    frames = colours[drawn[:, 0]][:, None, None].repeat(1, 16, 16, 1)
    frames[:, :8, :8] = colours[drawn[:, 1]][:, None, None]
    return frames


def fitted(steps=100):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        vq = MultiScaleVQ(SPEC)
    optimizer = torch.optim.AdamW(vq.parameters(), lr=3e-3)
    for step in range(steps):
        loss, _ = vq.loss(pictures(16, step), generator=torch_rng(step, "codes"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return vq


def test_frames_and_planes_are_inverse():
    frames = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16, 1).expand(-1, -1, -1, 3)
    assert denormalise_frames(normalise_frames(frames)).equal(frames)


def test_psnr_by_hand():
    black, grey = torch.zeros(1, 2, 2, 3, dtype=torch.uint8), torch.full((1, 2, 2, 3), 51, dtype=torch.uint8)
    # the error is a fifth of the range: 10·log10(25)
    assert psnr(black, grey).item() == pytest.approx(13.979, abs=1e-3)


@pytest.mark.slow
def test_it_learns_to_describe_frames_it_never_saw():
    vq, unseen = fitted(), pictures(64, 999)
    ids = vq.encode(unseen)
    assert ids.shape == (64, 5)
    assert int(ids.max()) < SPEC.codes
    known = psnr(vq.decode(ids), unseen).mean()
    average = unseen.float().mean(dim=0).to(torch.uint8).expand_as(unseen)
    assert known > psnr(average, unseen).mean() + 2
    # the coarse scale alone tells less
    assert psnr(denormalise_frames(vq.decoder(vq.features(ids, 1))), unseen).mean() < known


def test_features_add_up_over_scales_and_queries_know_the_coarser_ones_only():
    vq = fitted(2)
    ids = vq.encode(pictures(3))
    changed = ids.clone()
    changed[:, 1:] = (changed[:, 1:] + 1) % SPEC.codes
    assert vq.coarse_features(ids).equal(vq.coarse_features(changed))
    other = (ids + 1) % SPEC.codes
    assert not vq.coarse_features(ids).equal(vq.coarse_features(other))
    first = vq.features(ids, 1)
    # one cell of the first scale covers the whole map
    torch.testing.assert_close(first, vq.codebooks[0][ids[:, 0]][:, :, None, None].expand_as(first))


def test_what_is_expected_is_the_mean_entry():
    vq = fitted(2)
    ids = vq.encode(pictures(3))
    certain = torch.nn.functional.one_hot(ids, SPEC.codes).float()
    entries = torch.cat([book[part] for book, part in zip(vq.codebooks, vq.split_scales(ids))], dim=1)
    torch.testing.assert_close(vq.expected(certain), entries)
    halves = vq.expected((certain + certain.roll(1, 0)) / 2)
    torch.testing.assert_close(halves, (entries + entries.roll(1, 0)) / 2)


def test_codebooks_move_to_the_running_mean_of_their_cells():
    vq = MultiScaleVQ(SPEC, decay=0.5)
    vq.codebooks[0], vq.counts[0] = torch.zeros(8, 4), torch.full((8,), 2.0)
    cells = torch.tensor([[4.0, 0, 0, 0]] * 2)
    vq._update_codebook(0, cells, torch.tensor([3, 3]), torch_rng(0, "dead"))
    # half of a count of 2 at zero, half of a count of 2 at 4
    assert vq.codebooks[0][3].tolist() == [2.0, 0, 0, 0]
    assert vq.counts[0][3] == 2.0


def test_entries_out_of_use_are_put_onto_the_data():
    vq = MultiScaleVQ(SPEC)
    vq.codebooks[0], vq.counts[0] = torch.full((8, 4), 9.0), torch.zeros(8)
    cells = torch.randn(64, 4, generator=torch_rng(0, "cells"))
    vq._update_codebook(0, cells, torch.zeros(64, dtype=torch.long), torch_rng(0, "dead"))
    revived = vq.codebooks[0][1:]
    assert all((entry == cells).all(dim=1).any() for entry in revived)


def test_scales_that_do_not_fit_the_frame_are_refused():
    with pytest.raises(ConfigError, match="the last of them 4"):
        MultiScaleVQ(VQSpec(image_size=32, scales=(1, 2)))
