"""ARKitScenes folders: written and read back, as recorded by a device, and damaged."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lookact.envs.rooms.arkit import (
    check_folder,
    faces_in_boxes,
    floor_height,
    load_depth,
    load_frames,
    load_scene,
    save_scene,
)
from lookact.envs.rooms.arkit_frames import load_image, read_pincam, read_trajectory
from lookact.envs.rooms.floor_plan import floor_hull
from lookact.envs.rooms.generate import generate_room
from lookact.envs.rooms.ply import Mesh, write_ply
from lookact.envs.rooms.render import Camera, Renderer
from lookact.envs.rooms.scene import Box, Scene, camera_pose
from lookact.errors import DataError

CUBE = np.array([[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
                 [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]])  # fmt: skip


def recorded(folder: Path, *, floor: float = -1.25, naming: str = "color") -> Path:
    """A folder as a device would record it: floor 4 x 3 m at some height, a table with a stool under it."""
    table = Box("t", "table", np.array([1.0, 1.0, floor + 0.5]), np.array([1.0, 1.0, 1.0]), np.eye(3))
    stool = Box("s", "stool", np.array([1.2, 1.2, floor + 0.15]), np.array([0.3, 0.3, 0.3]), np.eye(3))
    ground = np.array([[0, 0, floor], [4, 0, floor], [4, 3, floor], [0, 3, floor]])
    vertices = np.concatenate([table.corners(), stool.corners(), ground]).astype(np.float32)
    faces = np.concatenate([CUBE, CUBE + 8, np.array([[0, 1, 2], [0, 2, 3]]) + 16]).astype(np.int32)
    poses = np.stack([camera_pose(2.0, 2.0, yaw, height=floor + 1.4) for yaw in (0.0, 1.0)])
    instances = np.repeat([0, 1, -1], [12, 12, 2]).astype(np.int32)
    scene = Scene(
        "41", vertices, faces, np.full((20, 3), 90, np.uint8), instances, (table, stool), ground[:, :2], poses
    )
    save_scene(scene, folder, frames=2, naming=naming)
    annotation = folder / "41_3dod_annotation.json"
    content = json.loads(annotation.read_text())
    del content["lookact"]
    annotation.write_text(json.dumps(content))
    write_ply(folder / "41_3dod_mesh.ply", Mesh(vertices, faces, scene.colors))
    return folder


@pytest.mark.parametrize("naming", ["lowres_wide", "color"])
def test_a_generated_room_comes_back_as_it_was(tmp_path: Path, naming: str) -> None:
    room = generate_room(3)
    save_scene(room, tmp_path / "room", frames=3, naming=naming)
    again = load_scene(tmp_path / "room")
    assert again.id == room.id
    for name in ("vertices", "faces", "colors", "instances", "floor"):
        np.testing.assert_array_equal(getattr(again, name), getattr(room, name))
    np.testing.assert_allclose(again.trajectory, room.trajectory, atol=1e-6)
    for one, two in zip(again.boxes, room.boxes, strict=True):
        assert (one.uid, one.label) == (two.uid, two.label)
        np.testing.assert_allclose(one.corners(), two.corners(), atol=1e-6)
    first, second = (Renderer(scene).render(room.trajectory[:2], Camera.square(24)) for scene in (room, again))
    np.testing.assert_array_equal(first.rgb, second.rgb)
    np.testing.assert_array_equal(first.instance, second.instance)
    assert check_folder(tmp_path / "room") == []


def test_saved_frames_are_the_rendered_ones(tmp_path: Path) -> None:
    room = generate_room(5)
    save_scene(room, tmp_path / "room", frames=2)
    frames = load_frames(tmp_path / "room")
    assert [round(frame.timestamp, 3) for frame in frames] == [0.1, round(0.1 * len(room.trajectory), 3)]
    width, height, fx, fy, cx, cy = read_pincam(frames[1].intrinsics)
    seen = Renderer(room).render(room.trajectory[-1:], Camera(width, height, fx, fy, cx, cy))
    np.testing.assert_array_equal(load_image(frames[1].image), seen.rgb[0])
    depth = load_depth(frames[1].depth)
    assert depth.dtype == np.float32
    assert depth.shape == (192, 256)
    np.testing.assert_allclose(depth, seen.depth[0], atol=0.00051)
    np.testing.assert_allclose(frames[1].pose, room.trajectory[-1], atol=1e-6)


def test_trajectory_lines_are_world_to_camera(tmp_path: Path) -> None:
    # a camera at (1, 2, 3) looking along +Y: its right is +X, its down is -Z; the turn is 90 degrees about X
    # world to camera sends a point p to (px - 1, -(pz - 3), py - 2): the shift is (-1, 3, -2)
    path = tmp_path / "x.traj"
    path.write_text(f"17.0 {np.pi / 2} 0 0 -1 3 -2\n")
    times, poses = read_trajectory(path)
    assert times.tolist() == [17.0]
    np.testing.assert_allclose(poses[0, :3, 3], [1, 2, 3], atol=1e-12)
    np.testing.assert_allclose(poses[0, :3, 2], [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(poses[0] @ [0, 0, 2, 1], [1, 4, 3, 1], atol=1e-12)


@pytest.mark.parametrize("naming", ["lowres_wide", "color"])
def test_a_recording_is_lowered_to_its_floor(tmp_path: Path, naming: str) -> None:
    scene = load_scene(recorded(tmp_path / "41", naming=naming))
    assert scene.vertices[:, 2].min() == pytest.approx(0, abs=1e-5)
    assert scene.boxes[0].centroid == pytest.approx([1, 1, 0.5], abs=1e-5)
    assert scene.trajectory[0, :3, 3] == pytest.approx([2, 2, 1.4], abs=1e-5)
    assert load_frames(tmp_path / "41")[0].pose[:3, 3] == pytest.approx([2, 2, 1.4], abs=1e-5)
    # the table's own bottom is level too, but lies inside
    x, y = scene.floor.T
    assert (x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2 == pytest.approx(12.0)


def test_faces_go_to_the_smallest_box_around_them(tmp_path: Path) -> None:
    scene = load_scene(recorded(tmp_path / "41"))
    assert scene.instances.tolist() == [0] * 12 + [1] * 12 + [-1] * 2


def test_frames_match_within_a_millisecond(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "41")
    frames = folder / "41_frames"
    (frames / "depth_densified" / "41_0.100.png").rename(frames / "depth_densified" / "41_0.101.png")
    (frames / "color_intrinsics" / "41_0.200.pincam").rename(frames / "color_intrinsics" / "41_0.202.pincam")
    first, second = load_frames(folder)
    assert first.depth.name == "41_0.101.png"
    assert second.intrinsics is None
    assert check_folder(folder) == [f"{frames / 'wide' / '41_0.200.png'}: has no intrinsics within 1 ms"]


def test_the_raw_layout_has_its_trajectory_too(tmp_path: Path) -> None:
    room = generate_room(0)
    save_scene(room, tmp_path / "room", frames=2)
    frames = tmp_path / "room" / f"{room.id}_frames"
    for part in list(frames.iterdir()):
        part.rename(tmp_path / "room" / part.name)
    frames.rmdir()
    np.testing.assert_allclose(load_scene(tmp_path / "room").trajectory, room.trajectory, atol=1e-6)
    assert len(load_frames(tmp_path / "room")) == 2
    assert check_folder(tmp_path / "room") == []


@pytest.mark.parametrize("label", ["tv_monitor", "tv monitor", "tv/monitor", "TV Monitor", "tv"])
def test_labels_are_written_in_one_way(tmp_path: Path, label: str) -> None:
    save_scene(generate_room(0), tmp_path / "room")
    path = next((tmp_path / "room").glob("*.json"))
    annotation = json.loads(path.read_text())
    annotation["data"][0]["label"] = label
    path.write_text(json.dumps(annotation))
    assert load_scene(tmp_path / "room").boxes[0].label == "tv_monitor"


def test_a_scene_without_frames_has_no_trajectory(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "41")
    (folder / "41_frames").rename(tmp_path / "elsewhere")
    assert load_scene(folder).trajectory.shape == (0, 4, 4)
    assert check_folder(folder) == [f"{folder / '41_frames'}: is missing; the scene has no trajectory"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("41_3dod_mesh.ply", b"ply\nformat ascii 1.0\n"),
        ("41_3dod_mesh.ply", None),
        ("41_3dod_annotation.json", b'{"data": [{"uid": "a"'),
        ("41_3dod_annotation.json", b'{"data": [{"uid": "a", "label": "bed"}]}'),
        ("41_3dod_annotation.json", b"[]"),
        ("41_frames/color.traj", b"0.1 0 0 0 1 2\n"),
        ("41_frames/color.traj", b"0.1 0 0 0 1 2 east\n"),
        ("41_frames/color.traj", b"0.1 0 0 0 1 2 nan\n"),
    ],
)
def test_damage_is_named_when_loading(tmp_path: Path, name: str, content: bytes | None) -> None:
    folder = recorded(tmp_path / "41")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=Path(name).name) as caught:
        load_scene(folder)
    assert "\n" not in str(caught.value)
    assert check_folder(folder) == [str(caught.value)]


def test_damaged_frames_are_named(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "41")
    frames = folder / "41_frames"
    picture = frames / "wide" / "41_0.100.png"
    picture.write_bytes(picture.read_bytes()[:200])
    (frames / "color_intrinsics" / "41_0.200.pincam").write_text("256 192 212 212 128\n")
    problems = check_folder(folder)
    assert len(problems) == 2
    assert "41_0.100.png: is not a readable picture" in problems[0]
    assert "41_0.200.pincam: needs 6 finite numbers, found 5" in problems[1]
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(frames / "depth_densified" / "41_0.200.png")
    with pytest.raises(DataError, match="one channel"):
        load_depth(frames / "depth_densified" / "41_0.200.png")


def test_missing_folders_trajectories_and_annotations_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        load_scene(tmp_path / "nowhere")
    folder = recorded(tmp_path / "41")
    (folder / "41_frames" / "color.traj").unlink()
    with pytest.raises(DataError, match=r"holds neither lowres_wide\.traj or color\.traj"):
        load_scene(folder)
    (folder / "41_3dod_annotation.json").unlink()
    with pytest.raises(DataError, match="needs one"):
        load_scene(folder)


def test_skipped_annotations_have_no_boxes_and_odd_labels_are_told(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "41")
    path = folder / "41_3dod_annotation.json"
    content = json.loads(path.read_text())
    content["data"][0]["label"] = "piano"
    path.write_text(json.dumps(content))
    assert check_folder(folder) == [f"{folder}: box t has the unknown label 'piano'"]
    path.write_text(json.dumps({**content, "skipped": True}))
    assert load_scene(folder).boxes == ()
    assert check_folder(folder) == [f"{folder}: the annotation has no objects"]


def test_more_frames_than_poses_and_unknown_names_are_refused(tmp_path: Path) -> None:
    room = dataclasses.replace(generate_room(1), trajectory=np.zeros((0, 4, 4)))
    with pytest.raises(DataError, match="trajectory of 0 poses"):
        save_scene(room, tmp_path / "room", frames=1)
    with pytest.raises(DataError, match="naming 'highres' is unknown"):
        save_scene(room, tmp_path / "room", naming="highres")
    save_scene(room, tmp_path / "room")
    assert load_scene(tmp_path / "room").trajectory.shape == (0, 4, 4)


def sheet(width: float, depth: float, height: float, *, noise: float = 0.0, cells: int = 12) -> tuple:
    """A level, slightly uneven patch of triangles: vertices (n, 3), faces (m, 3)."""
    x, y = np.meshgrid(np.linspace(0, width, cells + 1), np.linspace(0, depth, cells + 1))
    z = height + np.random.default_rng(0).uniform(-noise, noise, x.size)
    corner = (np.arange(cells)[:, None] * (cells + 1) + np.arange(cells)).ravel()
    lower = np.stack([corner, corner + 1, corner + cells + 2], axis=1)
    upper = np.stack([corner, corner + cells + 2, corner + cells + 1], axis=1)
    return np.column_stack([x.ravel(), y.ravel(), z]), np.concatenate([lower, upper])


def mesh_of(*sheets: tuple) -> Mesh:
    vertices = np.concatenate([part[0] for part in sheets]).astype(np.float32)
    starts = np.cumsum([0, *(len(part[0]) for part in sheets[:-1])])
    faces = np.concatenate([part[1] + start for part, start in zip(sheets, starts)]).astype(np.int32)
    return Mesh(vertices, faces, np.zeros((len(vertices), 3), np.uint8))


def test_the_floor_is_the_lowest_large_level_surface() -> None:
    room = mesh_of(
        sheet(4, 3, -1.3, noise=0.01), sheet(4, 3, 1.2, noise=0.01), sheet(2, 1, -0.6), sheet(0.3, 0.3, -2.0)
    )
    assert floor_height(room) == pytest.approx(-1.3, abs=0.01)


def test_a_floor_half_hidden_by_furniture_is_still_the_floor() -> None:
    assert floor_height(mesh_of(sheet(4, 1.2, 0.4), sheet(4, 3, 1.1))) == pytest.approx(0.4, abs=1e-6)


def test_meshes_without_level_parts_fall_back_to_their_lowest_points() -> None:
    corners = np.array([[0, 0, 1], [1, 0, 1], [1, 0, 3]], np.float32)
    wall = Mesh(corners, np.array([[0, 1, 2]], np.int32), np.zeros((3, 3), np.uint8))
    assert floor_height(wall) == pytest.approx(1.0)
    empty = Mesh(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.int32), np.zeros((0, 3), np.uint8))
    assert floor_height(empty) == 0.0
    assert floor_hull(empty.vertices).shape == (0, 2)


def test_the_hull_runs_counter_clockwise_around_the_floor_only() -> None:
    vertices = np.concatenate([sheet(4, 3, 0.0)[0], sheet(9, 9, 2.0)[0]]).astype(np.float32)
    x, y = floor_hull(vertices).T
    assert (x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2 == pytest.approx(12.0)
    # nothing near the floor: the rectangle around all there is
    assert floor_hull(vertices + np.float32(1)).tolist() == [[1, 1], [10, 1], [10, 10], [1, 10]]


def test_a_face_outside_all_boxes_belongs_to_none() -> None:
    vertices, faces = sheet(4, 1, 0.0, cells=4)
    box = Box("b", "bed", np.array([0.5, 0.5, 0.0]), np.array([1.0, 1.0, 0.1]), np.eye(3))
    found = faces_in_boxes(vertices.astype(np.float32), faces.astype(np.int32), (box,))
    centres = vertices[faces].mean(axis=1)
    assert found.tolist() == [0 if x < 1 else -1 for x in centres[:, 0]]
