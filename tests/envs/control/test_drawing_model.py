import mujoco
import numpy as np

from lookact.envs.control.drawing_model import drawing_model


def ball_model():
    vertices = np.random.default_rng(0).normal(size=(600, 3))
    vertices *= 0.1 / np.linalg.norm(vertices, axis=1, keepdims=True)
    spec = mujoco.MjSpec()
    spec.add_mesh(name="ball", uservert=vertices.ravel())
    spec.worldbody.add_light(pos=[0, 0, 3])
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[1, 1, 1])
    spec.worldbody.add_body(pos=[0, 0, 0.5]).add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="ball")
    return spec.compile()


def test_the_copy_is_lighter_and_the_original_untouched():
    model = ball_model()
    faces, types = model.mesh_facenum.copy(), model.geom_type.copy()
    fast = drawing_model(model)
    assert 20 < fast.mesh_facenum[0] < faces[0]
    assert not fast.light_castshadow.any()
    assert mujoco.mjtGeom.mjGEOM_PLANE not in fast.geom_type.tolist()
    assert np.array_equal(model.mesh_facenum, faces)
    assert np.array_equal(model.geom_type, types)


def test_the_triangles_that_stay_keep_the_shape():
    fast = drawing_model(ball_model())
    faces = fast.mesh_face[: fast.mesh_facenum[0]]
    corners = fast.mesh_vert[faces]
    assert ((faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 0] != faces[:, 2])).all()
    sides = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    area = 0.5 * np.linalg.norm(sides, axis=1).sum()
    # a sphere of radius 0.1
    assert abs(area / (4 * np.pi * 0.01) - 1) < 0.15
    assert len(np.unique(np.sort(faces, axis=1), axis=0)) == len(faces)
