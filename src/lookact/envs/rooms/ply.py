"""Triangle meshes as PLY files: ascii, little-endian and big-endian are read, with colours per vertex.

Besides the usual properties a face may carry an `instance` number, which other readers skip.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.errors import DataError

TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
    "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
    "double": "f8", "float64": "f8",
}  # fmt: skip
ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
CORNERS = ("vertex_indices", "vertex_index")

Fields = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Mesh:
    """Triangles as stored in a PLY file."""

    vertices: NDArray[np.float32]
    """(n, 3)"""
    faces: NDArray[np.int32]
    """(m, 3)"""
    colors: NDArray[np.uint8]
    """(n, 3)"""
    instances: NDArray[np.int32] | None = None
    """(m,) object of each face, where the file tells."""


@dataclass(frozen=True)
class Element:
    """One block of a PLY header; a property is (name, type, type of its count or None)."""

    name: str
    count: int
    properties: tuple[tuple[str, str, str | None], ...]


def read_ply(path: Path) -> Mesh:
    """The mesh in `path`. A torn or foreign file raises DataError."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); download it again") from None
    order, elements, offset = _read_header(path, raw)
    fields: dict[str, Fields] = {}
    stream = raw[offset:].split() if order == "" else []
    for element in elements:
        try:
            if order == "":
                fields[element.name], stream = _read_ascii(element, stream)
            else:
                fields[element.name], offset = _read_binary(element, raw, offset, order)
        except (ValueError, IndexError, OverflowError) as error:
            raise DataError(f"{path}: torn or malformed at element '{element.name}' ({error}); copy it again") from None
    return _assemble(path, fields)


def _read_header(path: Path, raw: bytes) -> tuple[str, list[Element], int]:
    """Byte order ("" for ascii), elements, and where the data begins."""
    end = raw.find(b"end_header")
    if not raw.startswith(b"ply") or end < 0:
        raise DataError(f"{path}: is not a PLY file (no 'ply' … 'end_header')")
    order: str | None = None
    elements: list[Element] = []
    try:
        for words in (line.split() for line in raw[:end].decode("latin-1").splitlines()):
            if words[:1] == ["format"]:
                order = ORDERS[words[1]]
            elif words[:1] == ["element"]:
                elements.append(Element(words[1], int(words[2]), ()))
            elif words[:1] == ["property"]:
                last = elements[-1]
                listed = words[1] == "list"
                entry = (words[-1], TYPES[words[3 if listed else 1]], TYPES[words[2]] if listed else None)
                elements[-1] = Element(last.name, last.count, (*last.properties, entry))
    except (KeyError, IndexError, ValueError) as error:
        raise DataError(f"{path}: the PLY header is malformed ({error})") from None
    if order is None:
        raise DataError(f"{path}: the PLY header names no format")
    return order, elements, raw.index(b"\n", end) + 1


def _read_binary(element: Element, raw: bytes, offset: int, order: str) -> tuple[Fields, int]:
    """Every list is taken to hold three entries, as in a mesh of triangles, and checked to."""
    columns: list[Any] = []
    for name, kind, count in element.properties:
        if count is not None:
            columns.append((f"{name}:count", order + count))
        columns.append((name, order + kind, (3,)) if count is not None else (name, order + kind))
    record = np.dtype(columns)
    if len(raw) - offset < record.itemsize * element.count:
        raise ValueError(
            f"{element.count} entries need {record.itemsize * element.count} bytes, {len(raw) - offset} left"
        )
    table = np.frombuffer(raw, record, element.count, offset)
    for name, _, count in element.properties:
        if count is not None and not np.all(table[f"{name}:count"] == 3):
            raise ValueError("faces that are not triangles")
    return {name: table[name] for name, _, _ in element.properties}, offset + table.nbytes


def _read_ascii(element: Element, words: list[bytes]) -> tuple[Fields, list[bytes]]:
    """The same from whitespace-separated words; also gives the words that are left."""
    width = sum(4 if count else 1 for _, _, count in element.properties)
    taken = element.count * width
    if len(words) < taken:
        raise ValueError(f"{element.count} entries need {taken} values, {len(words)} left")
    table = np.array(words[:taken], dtype=np.float64).reshape(element.count, width)
    fields: Fields = {}
    column = 0
    for name, kind, count in element.properties:
        if count is not None and not np.all(table[:, column] == 3):
            raise ValueError("faces that are not triangles")
        wide = table[:, column + 1 : column + 4] if count is not None else table[:, column]
        fields[name] = wide.astype(kind)
        column += 4 if count is not None else 1
    return fields, words[taken:]


def _assemble(path: Path, fields: dict[str, Fields]) -> Mesh:
    """The mesh from its columns; grey where the file has no colours."""
    vertex, face = fields.get("vertex", {}), fields.get("face", {})
    corners = next((face[name] for name in CORNERS if name in face), None)
    if not {"x", "y", "z"} <= set(vertex) or corners is None:
        raise DataError(f"{path}: needs vertices with x, y, z and faces with vertex_indices")
    vertices = np.stack([vertex[axis] for axis in "xyz"], axis=1).astype(np.float32)
    if not np.isfinite(vertices).all():
        raise DataError(f"{path}: has vertices that are not finite")
    if len(corners) and (corners.min() < 0 or corners.max() >= len(vertices)):
        raise DataError(f"{path}: has faces that point outside its {len(vertices)} vertices")
    colors = np.full((len(vertices), 3), 127, np.uint8)
    if {"red", "green", "blue"} <= set(vertex):
        colors = np.stack([vertex[name] for name in ("red", "green", "blue")], axis=1).astype(np.uint8)
    instances = face["instance"].astype(np.int32) if "instance" in face else None
    return Mesh(vertices, np.ascontiguousarray(corners, np.int32), colors, instances)


def write_ply(path: Path, mesh: Mesh) -> None:
    """Writes the mesh exactly, little-endian."""
    vertex = np.empty(len(mesh.vertices), [*((axis, "<f4") for axis in "xyz"), *((c, "u1") for c in ("r", "g", "b"))])
    for column, axis in enumerate("xyz"):
        vertex[axis] = mesh.vertices[:, column]
        vertex["rgb"[column]] = mesh.colors[:, column]
    columns: list[Any] = [("count", "u1"), ("corners", "<i4", (3,))]
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {len(vertex)}"]
    lines += [f"property float {axis}" for axis in "xyz"]
    lines += [f"property uchar {name}" for name in ("red", "green", "blue")]
    lines += [f"element face {len(mesh.faces)}", "property list uchar int vertex_indices"]
    if mesh.instances is not None:
        columns.append(("instance", "<i4"))
        lines.append("property int instance")
    face = np.empty(len(mesh.faces), columns)
    face["count"], face["corners"] = 3, mesh.faces
    if mesh.instances is not None:
        face["instance"] = mesh.instances
    header = "\n".join([*lines, "end_header", ""]).encode("ascii")
    path.write_bytes(header + vertex.tobytes() + face.tobytes())
