"""Rendering and room generation, beside the bare ray-cast of the same rays: the physical limit here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from embreex.mesh_construction import TriangleMesh
from embreex.rtcore_scene import EmbreeScene

from benchmarks.report import Aim, Row, compare, plain, plain_times
from benchmarks.timing import Facts, Work, race
from lookact.envs.rooms.generate import generate_room
from lookact.envs.rooms.render import BATCH_RAYS, Camera, Floats, Renderer, pixel_rays
from lookact.envs.rooms.scene import Array, Scene

SIZES = (64, 96)
ROOMS, VIEWS = 8, 16
"""Default rooms, and cameras in each of them."""
OVERHEAD = Aim(1.5, at_least=False)
FRAME_RATE = Aim(400, at_least=True, on="frames/s")
ROOM_RATE = Aim(100, at_least=True, on="rooms/s")
Rays = tuple[Floats, Floats]


def main(*, repetitions: int = 15) -> dict[str, Any]:
    """Frames a second at two sizes, alone and many in one call, and rooms a second; one core."""
    rows = [
        frame_row(size, together, repetitions=repetitions, aims=(OVERHEAD, FRAME_RATE) if size == 64 else (OVERHEAD,))
        for size in SIZES
        for together in (True, False)
    ]
    return plain(
        [*rows, room_row(repetitions=repetitions)],
        about="RGB-D frames and rooms, one core, beside embreex casting the same rays and nothing else",
        notes=[
            f"{ROOMS} generated rooms of the default style, {VIEWS} cameras in each; times are medians over "
            f"{repetitions} repetitions taken in turn",
            "ratio = time of LookAct's frames over time of the bare ray-cast; the cast returns face and distance, "
            "the frame has colour, depth and object ids",
            "generating a room casts no rays: its ratio says how many bare 64x64 ray-casts one room costs",
        ],
    )


def frame_row(size: int, together: bool, *, repetitions: int, aims: Sequence[Aim]) -> Row:
    """Frames of `size` pixels a side beside the cast of their rays."""
    times = race({"ours": (renders, (size, together)), "cast": (casts, (size, together))}, repetitions=repetitions)
    rate, cast_rate = (ROOMS * VIEWS / times[side].median for side in ("ours", "cast"))
    ratio, spread = compare(times["ours"], times["cast"])
    return Row(
        name=f"RGB-D {size}x{size}, " + (f"{VIEWS} cameras a call" if together else "one camera a call"),
        ours=f"{rate:.0f} frames/s",
        against=f"{cast_rate:.0f} casts/s",
        ratio=ratio,
        ratio_range=spread,
        aims=tuple(map(str, aims)),
        met=tuple(aim.met(ratio if aim.on == "ratio" else rate) for aim in aims),
        detail=plain_times(times),
    )


def room_row(*, repetitions: int) -> Row:
    """Rooms beside one bare ray-cast of a 64x64 frame."""
    times = race({"ours": (generates, ()), "cast": (casts, (64, True))}, repetitions=repetitions)
    rate, cast_rate = ROOMS / times["ours"].median, ROOMS * VIEWS / times["cast"].median
    ratio, spread = compare(times["ours"], times["cast"])
    return Row(
        name="rooms generated in memory",
        ours=f"{rate:.0f} rooms/s",
        against=f"{cast_rate:.0f} casts/s",
        ratio=ratio * VIEWS,
        ratio_range=(spread[0] * VIEWS, spread[1] * VIEWS),
        aims=(str(ROOM_RATE),),
        met=(ROOM_RATE.met(rate),),
        detail=plain_times(times),
    )


def renders(size: int, together: bool) -> Work:
    """LookAct's renderer."""
    camera = Camera.square(size)
    renderers = [(Renderer(room), views) for room, views in rooms_and_views()]

    def work() -> Facts:
        for renderer, views in renderers:
            for poses in calls(views, together):
                renderer.render(poses, camera)
        return {"frames": ROOMS * VIEWS}

    return work


def casts(size: int, together: bool) -> Work:
    """The same rays through embreex, in batches as large as the renderer's."""
    camera = Camera.square(size)
    step = max(1, BATCH_RAYS // size**2) if together else 1
    prepared = []
    for room, views in rooms_and_views():
        batches = [frame_rays(views[i : i + step], camera) for i in range(0, len(views), step)]
        prepared.append((bare_tree(room), batches))

    def work() -> Facts:
        for (tree, _), batches in prepared:
            for origins, directions in batches:
                tree.run(origins, directions, output=True)
        return {"frames": ROOMS * VIEWS}

    return work


def generates() -> Work:
    """Rooms, other ones each time."""
    made = 0

    def work() -> Facts:
        nonlocal made
        for seed in range(made, made + ROOMS):
            generate_room(seed)
        made += ROOMS
        return {"rooms": ROOMS}

    return work


def rooms_and_views() -> list[tuple[Scene, Array]]:
    """The rooms, each with camera poses (v, 4, 4) along its recorded walk."""
    rooms = [generate_room(seed) for seed in range(ROOMS)]
    picks = [np.linspace(0, len(room.trajectory) - 1, VIEWS).astype(int) for room in rooms]
    return [(room, room.trajectory[pick]) for room, pick in zip(rooms, picks)]


def calls(views: Array, together: bool) -> list[Array]:
    """The poses of each call."""
    return [views] if together else [view[None] for view in views]


def bare_tree(room: Scene) -> tuple[Any, Any]:
    """Embreex's tree over a room's triangles, and the mesh, which must be kept as long as the tree is used."""
    tree = EmbreeScene(robust=True)
    return tree, TriangleMesh(tree, room.vertices.astype(np.float32), room.faces.astype(np.int32))


def frame_rays(poses: Array, camera: Camera) -> Rays:
    """Every ray of the frames at `poses` (v, 4, 4): origins and directions (n, 3)."""
    views: Floats = poses.astype(np.float32)
    rays, _ = pixel_rays(camera)
    directions = np.matmul(rays, views[:, :3, :3].transpose(0, 2, 1)).reshape(-1, 3)
    return np.repeat(views[:, :3, 3], len(rays), axis=0), directions
