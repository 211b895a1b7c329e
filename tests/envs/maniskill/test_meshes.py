import numpy as np
import pytest
import trimesh

from lookact.envs.maniskill.meshes import Mesh, decimate, rectangle


def mesh_of(shape: trimesh.Trimesh) -> Mesh:
    return Mesh(
        np.asarray(shape.vertices, np.float32),
        np.asarray(shape.vertex_normals, np.float32),
        np.zeros((len(shape.vertices), 2), np.float32),
        np.asarray(shape.faces, np.uint32),
    )


def test_a_ball_keeps_its_size_and_shape_with_few_triangles():
    ball = mesh_of(trimesh.creation.icosphere(subdivisions=5, radius=0.1))
    thin = decimate(ball, 0.02)
    assert len(ball.triangles) == 20480
    assert 100 < len(thin.triangles) < 2000
    radii = np.linalg.norm(thin.vertices, axis=1)
    assert radii.min() > 0.095
    assert radii.max() < 0.1001
    assert np.abs((thin.normals * thin.vertices).sum(axis=1) / radii).min() > 0.95
    found = trimesh.Trimesh(thin.vertices, thin.triangles)
    assert found.volume == pytest.approx(4 / 3 * np.pi * 0.1**3, rel=0.05)


def test_no_hole_opens_where_normals_differ():
    """Corners in one cube share their place, also where an edge keeps two normals."""
    box = trimesh.creation.box((0.2, 0.2, 0.2)).subdivide_to_size(0.01)
    thin = decimate(mesh_of(box), 0.03)
    closed = trimesh.Trimesh(thin.vertices, thin.triangles)
    assert len(thin.triangles) < len(box.faces) / 4
    assert closed.is_watertight


def test_a_mesh_coarser_than_the_cells_stays_as_it_is():
    mesh = mesh_of(trimesh.creation.icosphere(subdivisions=1, radius=1.0))
    thin = decimate(mesh, 0.01)
    assert len(thin.triangles) == len(mesh.triangles)
    order, other = (np.lexsort(np.round(vertices, 5).T) for vertices in (thin.vertices, mesh.vertices))
    assert thin.vertices[order] == pytest.approx(mesh.vertices[other], abs=1e-6)


def test_a_rectangle_faces_along_x_and_repeats_its_texture():
    square = rectangle(3.0, 0.5)
    one, two, three = square.vertices[square.triangles[0]]
    assert np.cross(two - one, three - one)[0] > 0
    assert np.ptp(square.uvs, axis=0) == pytest.approx([12.0, 12.0])
