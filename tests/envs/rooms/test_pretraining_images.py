from types import SimpleNamespace

import numpy as np

from lookact.envs.rooms.generate import RoomStyle
from lookact.envs.rooms.pretraining_images import PATCH, annotate, labelled_images
from lookact.envs.rooms.render import Camera
from lookact.envs.rooms.simulator import View

CLASSES = ("bed", "sofa")
STYLE = RoomStyle(objects=(1, 2), classes=CLASSES, side=(3.0, 4.0))


def room_with(*labels):
    return SimpleNamespace(scene=SimpleNamespace(boxes=[SimpleNamespace(label=label) for label in labels]))


def test_coverage_is_the_share_of_a_patch_and_inverse_depth_its_mean():
    instance = np.full((2 * PATCH, 3 * PATCH), -1, np.int32)
    instance[:PATCH, PATCH : 2 * PATCH] = 1
    instance[PATCH : PATCH + PATCH // 2, :PATCH] = 0
    instance[PATCH:, 2 * PATCH :] = -2
    depth = np.full(instance.shape, 3.0, np.float32)
    depth[:PATCH, :PATCH] = 1.0
    depth[PATCH:, 2 * PATCH :] = 0.0
    rgb = np.zeros((*instance.shape, 3), np.uint8)
    image = annotate(View(None, rgb, depth, instance), room_with("sofa", "bed"), CLASSES)
    assert image.coverage[..., 0].tolist() == [[0, 1, 0], [0, 0, 0]]
    assert image.coverage[..., 1].tolist() == [[0, 0, 0], [0.5, 0, 0]]
    # nothing was hit in the last patch, so nothing is near in it
    assert image.inverse_depth.tolist() == [[0.5, 0.25, 0.25], [0.25, 0.25, 0.0]]
    assert image.coverage.dtype == image.inverse_depth.dtype == np.float32


def test_two_objects_of_one_class_add_up():
    instance = np.zeros((PATCH, PATCH), np.int32)
    instance[:, PATCH // 2 :] = 1
    view = View(None, np.zeros((PATCH, PATCH, 3), np.uint8), np.ones((PATCH, PATCH), np.float32), instance)
    assert annotate(view, room_with("bed", "bed"), CLASSES).coverage.tolist() == [[[1.0, 0.0]]]


def test_images_depend_on_seed_and_room_alone():
    camera = Camera.square(32, 90.0)
    some = list(labelled_images(3, rooms=[4, 9], per_room=2, style=STYLE, camera=camera))
    again = list(labelled_images(3, rooms=[9], per_room=2, style=STYLE, camera=camera))
    other = next(labelled_images(4, rooms=[9], per_room=1, style=STYLE, camera=camera))
    assert len(some) == 4
    assert all(np.array_equal(a.rgb, b.rgb) for a, b in zip(some[2:], again))
    assert not np.array_equal(some[2].rgb, some[3].rgb)
    assert not np.array_equal(other.rgb, some[2].rgb)
    shares = np.stack([image.coverage for image in some])
    assert shares.shape == (4, 2, 2, 2)
    assert 0 < shares.max() <= 1
    assert (shares.sum(-1) <= 1 + 1e-6).all()
