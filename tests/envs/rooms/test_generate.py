import dataclasses

import numpy as np
import pytest

from lookact.envs.rooms.generate import TURN_FRAMES, WALK_FRAMES, RoomStyle, generate_room, record_trajectory
from lookact.envs.rooms.obstacles import floor_clearance
from lookact.envs.rooms.render import Camera, Renderer
from lookact.envs.rooms.scene import CLASSES
from lookact.envs.rooms.space import FreeSpace, distance_field, free_space
from lookact.errors import ConfigError, EnvError


@pytest.mark.parametrize("seed", [0, 5, 123456789])
def test_the_same_seed_gives_the_same_room_bit_for_bit(seed):
    first, second = generate_room(seed), generate_room(seed)
    for field in ("vertices", "faces", "colors", "instances", "floor", "trajectory"):
        assert getattr(first, field).tobytes() == getattr(second, field).tobytes(), field
    for one, other in zip(first.boxes, second.boxes, strict=True):
        assert (one.uid, one.label) == (other.uid, other.label)
        assert one.centroid.tobytes() + one.size.tobytes() + one.axes.tobytes() == (
            other.centroid.tobytes() + other.size.tobytes() + other.axes.tobytes()
        )


def test_other_seeds_give_other_rooms():
    rooms = [generate_room(seed) for seed in range(12)]
    assert len({room.vertices.tobytes() for room in rooms}) == 12
    assert {len(room.floor) for room in rooms} == {4, 6}


@pytest.mark.parametrize("label", CLASSES)
def test_each_class_fills_its_box_exactly(label):
    scene = generate_room(11, RoomStyle(objects=(1, 1), classes=(label,)))
    (box,) = scene.boxes
    assert box.label == label
    vertices = scene.vertices[scene.faces[scene.instances == 0]].reshape(-1, 3)
    local = (vertices - box.centroid) @ box.axes.T
    np.testing.assert_allclose(local.min(axis=0), -box.size / 2, atol=2e-6)
    np.testing.assert_allclose(local.max(axis=0), box.size / 2, atol=2e-6)
    assert vertices[:, 2].min() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_a_room_keeps_its_promises(seed):
    scene = generate_room(seed)
    labels = [box.label for box in scene.boxes]
    assert 4 <= len(labels) <= 8
    assert len(set(labels)) == len(labels)
    assert len(scene.faces) <= 2500
    assert scene.faces.max() < len(scene.vertices) == len(scene.colors)
    assert set(np.unique(scene.instances)) == {-1, *range(len(labels))}
    # each face has one colour, so that a reader of its vertices sees what was painted
    assert (np.ptp(scene.colors[scene.faces].astype(int), axis=1) == 0).all()
    for box in scene.boxes:
        assert floor_clearance(scene.floor, box.corners()[:, :2]).min() > 0


@pytest.mark.parametrize("seed", range(10))
def test_objects_do_not_overlap(seed):
    boxes = generate_room(seed, RoomStyle(objects=(8, 8))).boxes
    for number, first in enumerate(boxes):
        for second in boxes[:number]:
            directions = np.concatenate([first.axes[:2, :2], second.axes[:2, :2]])
            spans = [(box.corners()[:, :2] @ directions.T) for box in (first, second)]
            gaps = np.maximum(spans[0].min(0) - spans[1].max(0), spans[1].min(0) - spans[0].max(0))
            assert gaps.max() > 0, (first.uid, second.uid)


@pytest.mark.parametrize("seed", range(8))
def test_every_object_can_be_walked_to(seed):
    scene = generate_room(seed)
    space = free_space(scene)
    rows, cols = np.nonzero(space.free)
    field = distance_field(space, space.centre(rows[0], cols[0])[None])
    assert np.isfinite(field[space.free]).all()
    centres = np.stack([space.centre(row, col) for row, col in zip(rows, cols)])
    for box in scene.boxes:
        local = np.abs((centres - box.centroid[:2]) @ box.axes[:2, :2].T) - box.size[:2] / 2
        assert np.hypot(*np.maximum(local, 0).T).min() < 0.8


def test_what_belongs_at_a_wall_faces_into_the_room():
    for seed in range(5):
        for label in ("sofa", "refrigerator", "toilet", "bed"):
            scene = generate_room(seed, RoomStyle(objects=(1, 1), classes=(label,)))
            box = scene.boxes[0]
            back, front = (box.centroid[:2] + sign * box.axes[1, :2] * box.size[1] / 2 for sign in (-1, 1))
            assert floor_clearance(scene.floor, back) < 0.04
            assert floor_clearance(scene.floor, front + 0.5 * box.axes[1, :2]) > 0


def test_chairs_face_their_table():
    style = RoomStyle(objects=(2, 2), classes=("table", "chair"))
    for seed in range(6):
        table, chair = sorted(generate_room(seed, style).boxes, key=lambda box: box.label != "table")
        towards = table.centroid[:2] - chair.centroid[:2]
        assert np.linalg.norm(towards) < 1.3
        assert chair.axes[1, :2] @ towards > 0.4


@pytest.mark.parametrize("seed", range(6))
def test_the_walk_stays_on_free_floor_and_sees_every_object(seed):
    scene = generate_room(seed)
    space = free_space(scene)
    assert 40 <= len(scene.trajectory) <= 60
    assert all(space.contains(pose[:2, 3]) for pose in scene.trajectory)
    rotations = scene.trajectory[:, :3, :3]
    np.testing.assert_allclose(
        rotations @ rotations.transpose(0, 2, 1), np.broadcast_to(np.eye(3), rotations.shape), atol=1e-12
    )
    assert (np.linalg.det(rotations) > 0).all()
    seen = Renderer(scene).render(scene.trajectory, Camera.square(32)).instance
    assert set(np.unique(seen)) == {-1, *range(len(scene.boxes))}


def test_styles_are_followed():
    style = RoomStyle(objects=(5, 5), classes=("chair", "stool"), side=(5.0, 6.0), shapes=("L",))
    scene = generate_room(2, style)
    labels = [box.label for box in scene.boxes]
    assert len(labels) == 5
    # distinct as long as there are classes left, so both appear twice at least
    assert min(labels.count("chair"), labels.count("stool")) == 2
    assert len(scene.floor) == 6
    sides = np.ptp(scene.floor, axis=0)
    assert ((sides >= 5.0) & (sides <= 6.0)).all()


def test_repeats_are_allowed_when_not_distinct():
    style = RoomStyle(objects=(6, 6), classes=CLASSES[:6], side=(6.0, 7.0), distinct=False)
    counts = [len({box.label for box in generate_room(seed, style).boxes}) for seed in range(8)]
    assert min(counts) < 6


def test_impossible_wishes_are_refused_with_a_remedy():
    with pytest.raises(ConfigError, match="choose from"):
        RoomStyle(classes=("unicorn",))
    with pytest.raises(ConfigError, match="rectangle"):
        dataclasses.replace(RoomStyle(), shapes=("circle",))
    with pytest.raises(EnvError, match="widen"):
        generate_room(0, RoomStyle(objects=(9, 9), side=(2.0, 2.2)))


def test_a_walk_looks_all_round_at_both_ends_and_crosses_the_room():
    free = np.zeros((30, 60), dtype=bool)
    free[2:28, 2:58] = True
    poses = record_trajectory(FreeSpace(free, np.zeros(2), 0.1), np.random.default_rng(0))
    assert poses.shape == (2 * TURN_FRAMES + WALK_FRAMES, 4, 4)
    for spin in (poses[:TURN_FRAMES], poses[-TURN_FRAMES:]):
        yaws = np.sort(np.arctan2(spin[:, 1, 2], spin[:, 0, 2]))
        assert np.diff(yaws).max() < 2 * np.pi / TURN_FRAMES + 1e-6
        assert np.ptp(spin[:, :2, 3], axis=0).max() < 1e-9
    # from anywhere, the farthest place lies at least half of the long side away
    assert np.linalg.norm(poses[0, :2, 3] - poses[-1, :2, 3]) > 2.3
    # the camera looks level from left to right and a little down
    assert np.allclose(poses[:, 2, 0], 0)
    assert (poses[:, 2, 2] < 0).all()
