"""PLY files in every byte order, with and without colours, whole and torn."""

from pathlib import Path

import numpy as np
import pytest
import trimesh

from lookact.envs.rooms.ply import Mesh, read_ply, write_ply
from lookact.errors import DataError

TRIANGLES = Mesh(
    np.array([[0, 0, 0], [1, 0, 0.1], [0, 1, 1 / 3], [-1e-8, 2.5e7, 5]], np.float32),
    np.array([[0, 1, 2], [3, 2, 1]], np.int32),
    np.array([[0, 1, 2], [255, 254, 253], [9, 8, 7], [100, 100, 100]], np.uint8),
    np.array([-1, 4], np.int32),
)


def assert_same(first: Mesh, second: Mesh) -> None:
    for name in ("vertices", "faces", "colors"):
        one, two = getattr(first, name), getattr(second, name)
        assert one.dtype == two.dtype
        np.testing.assert_array_equal(one, two)
    assert (first.instances is None) == (second.instances is None)
    if first.instances is not None:
        np.testing.assert_array_equal(first.instances, second.instances)


def rewrite_as_text(path: Path, mesh: Mesh) -> None:
    """The ascii file of a mesh that was written binary; nine digits survive float32."""
    header = path.read_bytes().partition(b"end_header")[0].replace(b"binary_little_endian", b"ascii")
    rows = [f"{x:.9g} {y:.9g} {z:.9g} {r} {g} {b}" for (x, y, z), (r, g, b) in zip(mesh.vertices, mesh.colors)]
    labels = [""] * len(mesh.faces) if mesh.instances is None else mesh.instances
    rows += [f"3 {a} {b} {c} {label}" for (a, b, c), label in zip(mesh.faces, labels)]
    path.write_bytes(header + b"end_header\n" + "\n".join(rows).encode() + b"\n")


@pytest.mark.parametrize("ascii_text", [False, True])
@pytest.mark.parametrize("labelled", [False, True])
def test_what_is_written_is_read_back_to_the_bit(tmp_path: Path, ascii_text: bool, labelled: bool) -> None:
    mesh = Mesh(TRIANGLES.vertices, TRIANGLES.faces, TRIANGLES.colors, TRIANGLES.instances if labelled else None)
    write_ply(tmp_path / "mesh.ply", mesh)
    if ascii_text:
        rewrite_as_text(tmp_path / "mesh.ply", mesh)
    assert_same(read_ply(tmp_path / "mesh.ply"), mesh)


@pytest.mark.parametrize("encoding", ["binary", "ascii"])
def test_reads_what_trimesh_writes(tmp_path: Path, encoding: str) -> None:
    foreign = trimesh.Trimesh(TRIANGLES.vertices, TRIANGLES.faces, vertex_colors=TRIANGLES.colors, process=False)
    (tmp_path / "mesh.ply").write_bytes(foreign.export(file_type="ply", encoding=encoding))
    mesh = read_ply(tmp_path / "mesh.ply")
    np.testing.assert_allclose(mesh.vertices, TRIANGLES.vertices, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(mesh.faces, TRIANGLES.faces)
    np.testing.assert_array_equal(mesh.colors, TRIANGLES.colors)
    assert mesh.instances is None


def test_trimesh_reads_what_is_written(tmp_path: Path) -> None:
    write_ply(tmp_path / "mesh.ply", TRIANGLES)
    foreign = trimesh.load(tmp_path / "mesh.ply", process=False)
    np.testing.assert_array_equal(foreign.faces, TRIANGLES.faces)
    np.testing.assert_array_equal(foreign.visual.vertex_colors[:, :3], TRIANGLES.colors)


def test_big_endian_with_normals_and_alpha(tmp_path: Path) -> None:
    header = "ply\r\nformat binary_big_endian 1.0\r\ncomment a scan\r\nelement vertex 3\r\n"
    header += "".join(f"property float {name}\r\n" for name in ("x", "y", "z", "nx", "ny", "nz"))
    header += "".join(f"property uchar {name}\r\n" for name in ("red", "green", "blue", "alpha"))
    header += "element face 1\r\nproperty list uchar uint vertex_index\r\nend_header\r\n"
    vertex = np.zeros(3, [("p", ">f4", (6,)), ("c", "u1", (4,))])
    vertex["p"][:, 0], vertex["c"] = [1, 2, 3], [[1, 2, 3, 255]] * 3
    face = np.array([(3, [2, 1, 0])], [("n", "u1"), ("i", ">u4", (3,))])
    (tmp_path / "mesh.ply").write_bytes(header.encode() + vertex.tobytes() + face.tobytes())
    mesh = read_ply(tmp_path / "mesh.ply")
    assert mesh.vertices[:, 0].tolist() == [1, 2, 3]
    assert mesh.faces.tolist() == [[2, 1, 0]]
    assert mesh.colors.tolist() == [[1, 2, 3]] * 3


def test_without_colours_a_mesh_is_grey(tmp_path: Path) -> None:
    text = "ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\n"
    text += "element face 1\nproperty list uchar int vertex_indices\nend_header\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n"
    (tmp_path / "mesh.ply").write_text(text)
    assert read_ply(tmp_path / "mesh.ply").colors.tolist() == [[127, 127, 127]] * 3


@pytest.mark.parametrize("ascii_text", [False, True])
def test_every_truncation_is_named(tmp_path: Path, ascii_text: bool) -> None:
    path = tmp_path / "mesh.ply"
    write_ply(path, TRIANGLES)
    if ascii_text:
        rewrite_as_text(path, TRIANGLES)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 3, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"mesh\.ply: "):
            read_ply(path)


def test_faces_beyond_the_vertices_are_refused(tmp_path: Path) -> None:
    write_ply(tmp_path / "mesh.ply", Mesh(TRIANGLES.vertices[:3], TRIANGLES.faces, TRIANGLES.colors[:3]))
    with pytest.raises(DataError, match="outside its 3 vertices"):
        read_ply(tmp_path / "mesh.ply")


def test_quads_and_missing_files_are_refused(tmp_path: Path) -> None:
    text = "ply\nformat ascii 1.0\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\n"
    text += "element face 1\nproperty list uchar int vertex_indices\nend_header\n"
    (tmp_path / "quad.ply").write_text(text + "0 0 0\n1 0 0\n1 1 0\n0 1 0\n4 0 1 2 3\n")
    with pytest.raises(DataError, match="not triangles"):
        read_ply(tmp_path / "quad.ply")
    with pytest.raises(DataError, match=r"none\.ply"):
        read_ply(tmp_path / "none.ply")
