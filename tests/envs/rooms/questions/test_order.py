"""The order of appearance, seen a second time with another ray caster."""

from collections import Counter

import numpy as np
import pytest
import trimesh

from lookact.envs.rooms.questions import ask
from lookact.envs.rooms.scene import Box, Scene, camera_pose
from lookact.envs.rooms.vsi import Question

CUBE = np.array([[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
                 [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]], np.int32)  # fmt: skip


def said(question: Question) -> list[str]:
    [text] = [option[3:] for option in question.options if option[0] == question.ground_truth]
    return text.split(", ")


def ring(bearings: dict[str, float], yaws: list[float]) -> Scene:
    """Cubes of a metre, 4 m around the origin at bearings in degrees, and a camera that turns in the middle."""
    boxes = tuple(
        Box(name, name.rstrip("0123456789"), np.array([4 * np.cos(a), 4 * np.sin(a), 1.4]), np.ones(3), np.eye(3))
        for name, a in ((name, np.radians(bearing)) for name, bearing in bearings.items())
    )
    vertices = np.concatenate([box.corners() for box in boxes]).astype(np.float32)
    faces = np.concatenate([CUBE + 8 * number for number in range(len(boxes))])
    instances = np.repeat(np.arange(len(boxes), dtype=np.int32), 12)
    poses = np.stack([camera_pose(0, 0, np.radians(yaw), height=1.4) for yaw in yaws])
    return Scene(
        "ring", vertices, faces, np.zeros((len(vertices), 3), np.uint8), instances, boxes, np.zeros((0, 2)), poses
    )


def orders(scene: Scene) -> list[list[str]]:
    return [said(question) for question in ask(scene, seed=0, types=["obj_appearance_order"], per_type=9)]


BEARINGS = {"bed": 0.0, "sofa": 90.0, "sink": 180.0, "oven": 270.0}


def test_orders_by_hand() -> None:
    assert orders(ring(BEARINGS, [0, 90, 180, 270])) == [["bed", "sofa", "sink", "oven"]]
    assert orders(ring(BEARINGS, [0, -90, -180, -270])) == [["bed", "oven", "sink", "sofa"]]


def test_a_kind_appears_with_its_first_member() -> None:
    two = {"bed1": 0.0, "sofa": 90.0, "sink": 180.0, "bed2": 270.0, "oven": 225.0}
    assert orders(ring(two, [90, 180, 225, 0])) == []
    assert orders(ring({**BEARINGS, "bed2": 135.0}, [90, 180, 270, 0])) == []
    assert orders(ring({**BEARINGS, "bed2": 225.0}, [90, 180, 225, 270])) == []
    assert orders(ring({**BEARINGS, "sofa2": 0.01}, [90, 180, 270, 0])) == [["sofa", "sink", "oven", "bed"]]


def test_things_seen_together_or_never_have_no_order() -> None:
    assert orders(ring({"bed": 0, "sofa": 20, "sink": 180, "oven": 270}, [10, 180, 270])) == []
    assert orders(ring(BEARINGS, [0, 90, 180])) == []
    assert orders(ring(BEARINGS, [0])) == []


def appearances(scene: Scene) -> dict[str, int]:
    """The first frame in which a member of each kind takes a quarter of a percent of the picture."""
    mesh = trimesh.Trimesh(scene.vertices, scene.faces, process=False)
    size = 60
    grid = (np.arange(size) + 0.5) / size * 2 - 1
    rays = np.stack([*np.meshgrid(grid, grid), np.ones((size, size))], axis=-1).reshape(-1, 3)
    first: dict[str, int] = {}
    for number, pose in enumerate(scene.trajectory):
        hits = mesh.ray.intersects_first(np.tile(pose[:3, 3], (len(rays), 1)), rays @ pose[:3, :3].T)
        for index, pixels in Counter(scene.instances[hits[hits >= 0]].tolist()).items():
            if index >= 0 and pixels >= 0.0025 * size * size:
                first.setdefault(scene.boxes[index].label.replace("_", " "), number)
    return first


@pytest.mark.slow
def test_orders_hold(asked) -> None:
    scenes = {scene.id: scene for scene, _ in asked["obj_appearance_order"]}
    first = {name: appearances(scene) for name, scene in scenes.items()}
    assert len(asked["obj_appearance_order"]) >= 60
    for scene, question in asked["obj_appearance_order"]:
        frames = [first[scene.id][name] for name in said(question)]
        assert frames == sorted(set(frames))
        assert len(set(question.options)) == 4
        assert {tuple(sorted(option[3:].split(", "))) for option in question.options} == {tuple(sorted(said(question)))}
