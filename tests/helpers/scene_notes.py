"""Scene notes in VSI-Bench's format: a small file of our own, and the real one where it lies beside the checkout."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

NAME = "shared/data/vsi-bench/arkitscenes_meta_info_val.json"


def real_notes() -> Path:
    """VSI-Bench's own notes of the 150 rooms from ARKitScenes; a test without them is skipped."""
    given = os.environ.get("LOOKACT_SCENE_NOTES")
    places = [Path(given)] if given else [folder / NAME for folder in Path(__file__).resolve().parents]
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        pytest.skip("needs VSI-Bench's scene notes")
    return found


def note(x: float, y: float, size: tuple[float, float, float], *, degrees: float = 0.0, bottom: float = -1.1) -> dict:
    """A box whose front (its first axis) looks along `degrees`; the floor of these notes lies at z = -1.1."""
    angle = math.radians(degrees)
    axes = np.array([[math.cos(angle), math.sin(angle), 0], [-math.sin(angle), math.cos(angle), 0], [0, 0, 1]])
    centroid = np.array([x, y, bottom + size[2] / 2])
    reach = np.abs(axes).T @ np.array(size) / 2
    return {"centroid": centroid.tolist(), "axesLengths": list(size), "normalizedAxes": axes.ravel().tolist(),
            "min": (centroid - reach).tolist(), "max": (centroid + reach).tolist()}  # fmt: skip


def room(objects: dict[str, list[dict]], *, size: float, centre: tuple[float, float] = (0, 0), **more: str) -> dict:
    """One scene of the notes."""
    return {"dataset": "home", "room_size": size, "room_center": [*centre, 0.2], "object_bbox": objects,
            "object_counts": {label: len(boxes) for label, boxes in objects.items()}, **more}  # fmt: skip


def living_room(*, turned: float = 0.0, **more: str) -> dict:
    """20 m² round a sofa that looks at a TV 4 m before it, a table between them and a bed in the corner."""
    angle = math.radians(turned)

    def at(x: float, y: float, size: tuple[float, float, float], degrees: float, bottom: float = -1.1) -> dict:
        place = (x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle))
        return note(*place, size, degrees=degrees + turned, bottom=bottom)

    return room(
        {
            "sofa": [at(-2, 0, (0.9, 1.8, 0.8), 0)],
            "tv": [at(2.0, 0.2, (0.05, 1.0, 0.6), 180, -0.1)],
            "table": [at(-0.5, 0, (0.6, 1.0, 0.45), 0)],
            "bed": [at(1.2, -1.4, (1.9, 1.2, 0.6), 90)],
        },
        size=20.0,
        **more,
    )


def write_notes(path: Path, rooms: dict[str, dict]) -> str:
    path.write_text(json.dumps(rooms))
    return str(path)
