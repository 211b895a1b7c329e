import numpy as np
import pytest

from lookact.envs.rooms.parts import (
    BOWL,
    BOX,
    CEILING,
    CONE,
    DISC,
    FLOOR,
    TEMPLATES,
    TUBE,
    WALL,
    Placed,
    assemble,
    shaded,
)  # fmt: skip


@pytest.mark.parametrize("shape", [BOX, TUBE, DISC, BOWL, CONE])
def test_solids_are_closed_and_face_outward(shape):
    vertices, faces = TEMPLATES[shape]
    assert vertices.min() == pytest.approx(0)
    assert vertices.max() == pytest.approx(1)
    a, b, c = vertices[faces].transpose(1, 0, 2)
    volume = (a * np.cross(b, c)).sum() / 6
    assert 0.2 < volume <= 1 + 1e-9
    edges = {(int(f[i]), int(f[(i + 1) % 3])) for f in faces for i in range(3)}
    assert len(edges) == 3 * len(faces)
    assert all((second, first) in edges for first, second in edges)


@pytest.mark.parametrize(("shape", "normal"), [(FLOOR, [0, 0, 1]), (CEILING, [0, 0, -1])])
def test_level_rectangles_face_up_or_down(shape, normal):
    vertices, faces = TEMPLATES[shape]
    for a, b, c in vertices[faces]:
        np.testing.assert_allclose(np.cross(b - a, c - a), normal)


def test_a_wall_faces_to_the_left_of_its_way():
    mesh = assemble([Placed(np.array([[WALL, 0, 0, 0, 3, 0, 2, 9, 9, 9.0]]))])
    for a, b, c in mesh.vertices[mesh.faces]:
        np.testing.assert_allclose(np.cross(b - a, c - a), [0, 6, 0])


def test_parts_are_turned_moved_and_numbered():
    part = np.array([[BOX, 0, 0, 0, 1, 2, 3, 10, 20, 300.0]])
    mesh = assemble([Placed(part), Placed(part, x=5, y=1, yaw=np.pi / 2, instance=4)])
    assert mesh.instances.tolist() == [-1] * 12 + [4] * 12
    np.testing.assert_allclose(mesh.vertices[8:].min(axis=0), [3, 1, 0], atol=1e-6)
    np.testing.assert_allclose(mesh.vertices[8:].max(axis=0), [5, 2, 3], atol=1e-6)
    assert mesh.faces[12:].min() == 8
    assert mesh.colors[0].tolist() == [10, 20, 255]


def test_shaded_stays_a_colour():
    assert shaded((100.0, 200.0, 10.0), 1.5) == (150.0, 255.0, 15.0)
