"""ARKitScenes 3dod folders, read and written.

    {video_id}/{video_id}_3dod_annotation.json
               {video_id}_3dod_mesh.ply
               {video_id}_frames/…                  (see arkit_frames; in the raw layout these lie in the folder itself)

A recording's origin is where the device was switched on, so its floor lies at some other height than zero.
`load_scene` finds that height in the mesh and lowers vertices, boxes and poses by it: the floor is z = 0.
Its floor plan is the outline of what the mesh shows of the floor (see floor_plan).

Written by LookAct, a folder also keeps each face's object (in the PLY) and the floor plan (under "lookact" in the
annotation), so that a generated room comes back as it was; readers of plain ARKitScenes pass over both.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lookact.envs.rooms.arkit_frames import (
    NAMINGS,
    Frame,
    find_naming,
    list_frames,
    load_depth,
    load_image,
    read_pincam,
    read_trajectory,
    write_trajectory,
)
from lookact.envs.rooms.floor_plan import floor_plan
from lookact.envs.rooms.ply import Mesh, read_ply, write_ply
from lookact.envs.rooms.render import Camera, Renderer
from lookact.envs.rooms.scene import CLASSES, Array, Box, Scene, canonical_label
from lookact.errors import DataError
from lookact.text.file_names import file_name

__all__ = ["check_folder", "load_depth", "load_frames", "load_scene", "save_scene"]

LOWRES = Camera(256, 192, 212.0, 212.0, 128.0, 96.0)
"""Like the device's small wide camera."""
FRAME_SECONDS = 0.1
ROUNDING = 1e-4
"""Metres; a box may fit its object to the bit, and a scan is stored in single precision."""


def load_scene(folder: str | Path) -> Scene:
    """The room in an ARKitScenes folder, its floor at z = 0. Without a frames folder the trajectory is empty."""
    folder = Path(folder)
    video_id = _video_id(folder)
    mesh = read_ply(folder / f"{video_id}_3dod_mesh.ply")
    boxes, plan = _read_annotation(folder / f"{video_id}_3dod_annotation.json")
    frames = frames_folder(folder, video_id)
    poses = np.zeros((0, 4, 4))
    if frames.is_dir():
        _, poses = read_trajectory(frames / find_naming(frames).trajectory)
    drop = np.array([0.0, 0.0, floor_height(mesh) if plan is None else 0.0])
    vertices = (mesh.vertices - drop).astype(np.float32)
    boxes = tuple(dataclasses.replace(box, centroid=box.centroid - drop) for box in boxes)
    poses[:, :3, 3] -= drop
    instances = mesh.instances if mesh.instances is not None else faces_in_boxes(vertices, mesh.faces, boxes)
    if len(instances) and not -1 <= instances.min() <= instances.max() < len(boxes):
        raise DataError(f"{folder}: the mesh names objects that the annotation's {len(boxes)} boxes don't hold")
    floor = floor_plan(vertices, mesh.faces, boxes) if plan is None else plan
    return Scene(video_id, vertices, mesh.faces, mesh.colors, instances, boxes, floor, poses)


def load_frames(folder: str | Path) -> tuple[Frame, ...]:
    """The recorded moments of a folder in order of time, their poses in the frame of `load_scene`."""
    folder = Path(folder)
    video_id = _video_id(folder)
    _, plan = _read_annotation(folder / f"{video_id}_3dod_annotation.json")
    drop = np.zeros((4, 4))
    drop[2, 3] = floor_height(read_ply(folder / f"{video_id}_3dod_mesh.ply")) if plan is None else 0.0
    return tuple(
        frame if frame.pose is None else dataclasses.replace(frame, pose=frame.pose - drop)
        for frame in list_frames(frames_folder(folder, video_id))
    )


def frames_folder(folder: Path, video_id: str) -> Path:
    """Where trajectory and pictures are: in a folder of their own, or as in the raw layout in the scene's itself."""
    raw = any((folder / naming.trajectory).is_file() for naming in NAMINGS.values())
    return folder if raw else folder / f"{video_id}_frames"


def save_scene(scene: Scene, folder: str | Path, *, frames: int = 0, naming: str = "lowres_wide") -> None:
    """Writes the room as an ARKitScenes folder, with `frames` pictures rendered evenly along its trajectory."""
    folder = Path(folder)
    names = NAMINGS.get(naming)
    if names is None:
        raise DataError(f"naming '{naming}' is unknown; use {' or '.join(NAMINGS)}")
    if frames > len(scene.trajectory):
        raise DataError(f"{frames} frames asked of a trajectory of {len(scene.trajectory)} poses; ask for fewer")
    id = file_name(scene.id)
    place = folder / f"{id}_frames"
    for part in (names.intrinsics, names.depth, names.images):
        (place / part).mkdir(parents=True, exist_ok=True)
    write_ply(folder / f"{id}_3dod_mesh.ply", Mesh(scene.vertices, scene.faces, scene.colors, scene.instances))
    (folder / f"{id}_3dod_annotation.json").write_text(json.dumps(_annotation(scene)))
    times = FRAME_SECONDS * np.arange(1.0, len(scene.trajectory) + 1)
    write_trajectory(place / names.trajectory, times, scene.trajectory)
    if not frames:
        return
    chosen = np.linspace(0, len(times) - 1, frames).round().astype(int)
    pictures = Renderer(scene).render(scene.trajectory[chosen], LOWRES)
    depth = np.where(np.isfinite(pictures.depth), pictures.depth * 1000, 0).round().clip(0, 65535).astype(np.uint16)
    pincam = " ".join(f"{value:g}" for value in dataclasses.astuple(LOWRES))
    for row, time in enumerate(times[chosen]):
        stem = f"{id}_{time:.3f}"
        Image.fromarray(pictures.rgb[row]).save(place / names.images / f"{stem}.png")
        Image.fromarray(depth[row]).save(place / names.depth / f"{stem}.png")
        (place / names.intrinsics / f"{stem}.pincam").write_text(f"{pincam}\n")


def check_folder(folder: str | Path) -> list[str]:
    """What is wrong with a folder, one line each; empty when all of it can be used."""
    folder = Path(folder)
    try:
        scene = load_scene(folder)
    except DataError as error:
        return [str(error)]
    problems = [f"{folder}: box {box.uid} has the unknown label '{box.label}'" for box in scene.boxes
                if box.label not in CLASSES]  # fmt: skip
    if not scene.boxes:
        problems.append(f"{folder}: the annotation has no objects")
    place = frames_folder(folder, scene.id)
    if not place.is_dir():
        return [*problems, f"{place}: is missing; the scene has no trajectory"]
    try:
        recorded = list_frames(place)
    except DataError as error:
        return [*problems, str(error)]
    for frame in recorded:
        problems += _frame_problems(frame)
    return problems


def _frame_problems(frame: Frame) -> list[str]:
    parts = {"pose": frame.pose, "depth map": frame.depth, "intrinsics": frame.intrinsics}
    problems = [f"{frame.image}: has no {part} within 1 ms" for part, found in parts.items() if found is None]
    try:
        load_image(frame.image)
        if frame.depth is not None:
            load_depth(frame.depth)
        if frame.intrinsics is not None:
            read_pincam(frame.intrinsics)
    except DataError as error:
        problems.append(str(error))
    return problems


def _video_id(folder: Path) -> str:
    if not folder.is_dir():
        raise DataError(f"{folder}: is not a folder; give a scene's own folder, as in Training/40753679")
    suffix = "_3dod_annotation.json"
    if (folder / f"{folder.name}{suffix}").is_file():
        return folder.name
    found = [path.name.removesuffix(suffix) for path in folder.glob(f"*{suffix}")]
    if len(found) != 1:
        raise DataError(f"{folder}: needs one *{suffix}, holds {len(found)}")
    return found[0]


def _read_annotation(path: Path) -> tuple[tuple[Box, ...], Array | None]:
    """The boxes, and the floor plan where LookAct wrote one."""
    try:
        content = json.loads(path.read_text())
        items = [] if content.get("skipped") else content["data"]
        boxes = tuple(_box(item) for item in items)
        plan = content.get("lookact", {}).get("floor")
        return boxes, None if plan is None else np.array(plan, dtype=np.float64).reshape(-1, 2)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: is not a 3dod annotation ({type(error).__name__}: {error})") from None


def _box(item: dict[str, Any]) -> Box:
    aligned = item["segments"]["obbAligned"]
    centroid = np.array(aligned["centroid"], dtype=np.float64).reshape(3)
    size = np.array(aligned["axesLengths"], dtype=np.float64).reshape(3)
    axes = np.array(aligned["normalizedAxes"], dtype=np.float64).reshape(3, 3)
    if not (np.isfinite(centroid).all() and (size >= 0).all() and np.allclose(axes @ axes.T, np.eye(3), atol=1e-3)):
        raise ValueError(f"object {item['uid']} has no proper box")
    return Box(str(item["uid"]), canonical_label(str(item["label"])), centroid, size, axes)


def _annotation(scene: Scene) -> dict[str, Any]:
    def aligned(box: Box) -> dict[str, Any]:
        return {
            "centroid": box.centroid.tolist(),
            "axesLengths": box.size.tolist(),
            "normalizedAxes": box.axes.reshape(-1).tolist(),
        }

    data = [{"uid": box.uid, "label": box.label, "segments": {"obbAligned": aligned(box)}} for box in scene.boxes]
    return {"data": data, "skipped": False, "lookact": {"floor": scene.floor.tolist()}}


def floor_height(mesh: Mesh) -> float:
    """The lowest height at which much level surface lies; the lowest percent of vertices where nothing is level."""
    if not len(mesh.faces):
        return float(np.percentile(mesh.vertices[:, 2], 1)) if len(mesh.vertices) else 0.0
    first, second, third = (mesh.vertices[mesh.faces[:, corner]].astype(np.float64) for corner in range(3))
    normals = np.cross(second - first, third - first)
    areas = np.linalg.norm(normals, axis=1)
    level = np.abs(normals[:, 2]) > 0.95 * areas
    heights, weights = ((first + second + third)[level, 2] / 3), areas[level]
    if not len(heights):
        return float(np.percentile(mesh.vertices[:, 2], 1))
    bins = np.floor((heights - heights.min()) / 0.05).astype(int)
    surface = np.bincount(bins, weights)
    lowest = int(np.argmax(surface >= 0.3 * surface.max()))
    near = np.abs(bins - lowest) <= 1
    return float(np.average(heights[near], weights=weights[near]))


def faces_in_boxes(
    vertices: NDArray[np.float32], faces: NDArray[np.int32], boxes: tuple[Box, ...]
) -> NDArray[np.int32]:
    """(m,) the smallest box that holds each face's centroid, or -1."""
    centres = vertices[faces].mean(axis=1).astype(np.float64)
    instances = np.full(len(faces), -1, np.int32)
    # large boxes first, so that the smaller one overwrites
    for index in sorted(range(len(boxes)), key=lambda index: -float(np.prod(boxes[index].size))):
        box = boxes[index]
        inside = (np.abs((centres - box.centroid) @ box.axes.T) <= box.size / 2 + ROUNDING).all(axis=1)
        instances[inside] = index
    return instances
