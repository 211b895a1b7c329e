import numpy as np
import pytest

from lookact.envs.shapes.scene import COLOURS, SHAPES, draw_scene, outline


def test_the_same_stream_draws_the_same_scene_and_patches_tell_what_covers_them():
    first, again = (draw_scene(np.random.default_rng(4)) for _ in range(2))
    assert first.things == again.things
    assert (first.image.rgb == again.image.rgb).all()
    for number in range(30):
        scene = draw_scene(np.random.default_rng(number))
        assert 1 <= len(scene.things) <= 5
        side = len(scene.image.rgb) // 16
        assert scene.image.coverage.shape == (side, side, len(COLOURS) + len(SHAPES))
        colours = {[*COLOURS][i] for i in np.nonzero(scene.image.coverage.sum(axis=(0, 1)))[0] if i < len(COLOURS)}
        assert colours == {thing.colour for thing in scene.things}
        # every covered pixel has one colour and one shape
        covered = scene.image.coverage[..., : len(COLOURS)].sum(), scene.image.coverage[..., len(COLOURS) :].sum()
        assert covered[0] == pytest.approx(covered[1], rel=1e-5)


def test_a_thing_has_its_colour_at_its_centre():
    for number in range(30):
        scene = draw_scene(np.random.default_rng(number))
        size = len(scene.image.rgb)
        for thing in scene.things:
            pixel = scene.image.rgb[int(thing.y * size), int(thing.x * size)].astype(int)
            assert np.abs(pixel - COLOURS[thing.colour]).max() <= 15


@pytest.mark.parametrize(
    ("shape", "area"), [("square", 400), ("circle", 314), ("diamond", 200), ("triangle", 200), ("cross", 222)]
)
def test_outlines_have_the_area_of_their_shape(shape, area):
    # a radius of 10: 20², 100 π, 20² / 2 twice, and two bars of 20 by 20/3 that share a square
    assert outline(shape, 32, 16.0, 16.0, 10.0).sum() == pytest.approx(area, rel=0.15)
