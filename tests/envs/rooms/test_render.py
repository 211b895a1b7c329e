import numpy as np
import pytest

from lookact.envs.rooms.generate import generate_room
from lookact.envs.rooms.parts import BOX, Placed, assemble
from lookact.envs.rooms.render import Camera, Renderer, face_normals, pixel_rays
from lookact.envs.rooms.scene import Box, Scene, camera_pose

HALL = np.array([4.0, 6.0, 2.5])


def hall(*objects):
    """An empty box room from the origin to HALL, with cuboids (low, high) as its objects."""
    walls = np.array([[BOX, 0, 0, 0, *HALL, 200, 190, 180]])
    placed = [Placed(walls)]
    boxes = []
    for number, (low, high) in enumerate(objects):
        placed.append(Placed(np.array([[BOX, *low, *high, 220, 40, 40]]), instance=number))
        low, high = np.array(low), np.array(high)
        boxes.append(Box(f"table-{number}", "table", (low + high) / 2, high - low, np.eye(3)))
    mesh = assemble(placed)
    floor = np.array([[0, 0], [4, 0], [4, 6], [0, 6.0]])
    return Scene(
        "hall", mesh.vertices, mesh.faces, mesh.colors, mesh.instances, tuple(boxes), floor, np.zeros((0, 4, 4))
    )


def world_rays(pose, camera):
    rays, _ = pixel_rays(camera)
    return rays.astype(float) @ pose[:3, :3].T


@pytest.mark.parametrize(("yaw", "pitch"), [(0.0, 0.0), (np.pi / 2, 0.0), (0.7, -0.35), (-2.3, 0.4)])
def test_depth_is_the_distance_to_the_walls_of_a_box_room(yaw, pitch):
    pose = camera_pose(1.2, 2.1, yaw, height=1.3, pitch=pitch)
    camera = Camera.square(64)
    rays = world_rays(pose, camera)
    with np.errstate(divide="ignore"):
        ahead = np.where(rays > 0, (HALL - pose[:3, 3]) / rays, -pose[:3, 3] / rays)
    depth = Renderer(hall()).render(pose[None], camera).depth[0]
    # the rays' z is 1 in the camera's frame, so the ray parameter is the depth
    np.testing.assert_allclose(depth.ravel(), ahead.min(axis=1), atol=1e-3)


def test_a_wall_straight_ahead_has_one_depth():
    frames = Renderer(hall()).render(camera_pose(1.0, 3.0, 0.0, height=1.25)[None], Camera.square(32, 40.0))
    np.testing.assert_allclose(frames.depth, 3.0, atol=1e-4)


def test_pixels_follow_the_intrinsics():
    # a small cube 2 m ahead, 0.5 m to the left and 0.25 m above the camera
    cube = np.array([3.0, 3.5, 1.5])
    scene = hall((cube - 0.02, cube + 0.02))
    camera = Camera(width=80, height=48, fx=60.0, fy=50.0, cx=42.0, cy=20.0)
    frames = Renderer(scene).render(camera_pose(1.0, 3.0, 0.0, height=1.25)[None], camera)
    rows, cols = np.nonzero(frames.instance[0] == 0)
    assert frames.rgb.shape == (1, 48, 80, 3)
    assert abs(cols.mean() + 0.5 - (42 - 60 * 0.5 / 2)) < 0.6
    assert abs(rows.mean() + 0.5 - (20 - 50 * 0.25 / 2)) < 0.6


def test_hits_lie_in_the_box_of_their_instance_and_nowhere_else():
    scene = generate_room(3)
    camera = Camera.square(48)
    poses = scene.trajectory[::5]
    frames = Renderer(scene).render(poses, camera)
    rays = np.stack([world_rays(pose, camera) for pose in poses])
    points = poses[:, None, :3, 3] + frames.depth.reshape(len(poses), -1, 1) * rays
    instance = frames.instance.reshape(len(poses), -1)
    assert set(np.unique(instance)) == {-1, *range(len(scene.boxes))}
    for number, box in enumerate(scene.boxes):
        local = (points[instance == number] - box.centroid) @ box.axes.T
        assert (np.abs(local) <= box.size / 2 + 1e-3).all()
    for number, box in enumerate(scene.boxes):
        local = np.abs((points[instance == -1] - box.centroid) @ box.axes.T)
        # structure never shows up inside a box: only shadows and skirting touch its faces
        assert not (local < box.size / 2 - 0.02).all(axis=1).any(), number


def test_faces_and_depths_agree_with_brute_force():
    scene = generate_room(8)
    camera = Camera.square(64)
    pose = scene.trajectory[20]
    frames = Renderer(scene).render(pose[None], camera)
    chosen = np.random.default_rng(0).choice(64 * 64, size=60, replace=False)
    corners = scene.vertices[scene.faces].astype(float)
    for pixel in chosen:
        ray = world_rays(pose, camera)[pixel]
        distance, face = nearest_triangle(pose[:3, 3], ray, corners)
        assert frames.depth[0].ravel()[pixel] == pytest.approx(distance, abs=1e-3)
        assert frames.instance[0].ravel()[pixel] == scene.instances[face]


def nearest_triangle(origin, ray, corners):
    """Solves origin + t ray = a + u (b - a) + v (c - a) for every triangle."""
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    matrices = np.stack([np.broadcast_to(-ray, a.shape), b - a, c - a], axis=2)
    solvable = np.abs(np.linalg.det(matrices)) > 1e-12
    solution = np.full(a.shape, np.inf)
    solution[solvable] = np.linalg.solve(matrices[solvable], (origin - a)[solvable][..., None])[..., 0]
    t, u, v = solution.T
    t = np.where((u >= -1e-9) & (v >= -1e-9) & (u + v <= 1 + 1e-9) & (t > 0), t, np.inf)
    return t.min(), int(t.argmin())


def test_many_cameras_in_one_call_equal_one_by_one():
    scene = generate_room(1)
    renderer, camera = Renderer(scene), Camera.square(40)
    together = renderer.render(scene.trajectory, camera)
    for number in (0, 11, 20, 21, len(scene.trajectory) - 1):
        alone = renderer.render(scene.trajectory[number : number + 1], camera)
        assert np.array_equal(together.rgb[number], alone.rgb[0])
        assert np.array_equal(together.depth[number], alone.depth[0])
        assert np.array_equal(together.instance[number], alone.instance[0])


def test_nothing_is_seen_outside_the_room():
    away = camera_pose(10.0, 3.0, 0.0, height=1.0)[None]
    frames = Renderer(hall()).render(away, Camera.square(8))
    assert (frames.instance == -2).all()
    assert (frames.depth == 0).all()


def test_no_poses_give_no_frames():
    frames = Renderer(hall()).render(np.zeros((0, 4, 4)), Camera.square(8))
    assert frames.rgb.shape == (0, 8, 8, 3)


def test_objects_keep_their_hue():
    scene = hall(((2.5, 2.5, 0.0), (3.5, 3.5, 1.5)))
    frames = Renderer(scene).render(camera_pose(1.0, 3.0, 0.0, height=1.0)[None], Camera.square(32))
    red, green, blue = frames.rgb[frames.instance == 0].mean(axis=0)
    assert red > 120
    assert green == pytest.approx(red * 40 / 220, abs=2)
    assert blue == pytest.approx(green, abs=1)


def test_look_down_sees_what_is_on_top():
    scene = hall(((2.5, 2.5, 0.0), (3.5, 3.5, 1.5)))
    on_table, on_floor = Renderer(scene).look_down(np.array([[3.0, 3.0], [1.0, 1.0]]), 2.0)
    assert on_table[0] > 4 * on_table[1]
    assert on_floor[1] > 0.8 * on_floor[0]


def test_face_normals_are_unit_or_zero():
    corners = np.array([[[0, 0, 0], [2, 0, 0], [0, 3, 0]], [[0, 0, 0], [1, 1, 1], [2, 2, 2]]], dtype=np.float32)
    np.testing.assert_allclose(face_normals(corners), [[0, 0, 1], [0, 0, 0]])
