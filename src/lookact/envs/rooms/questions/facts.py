"""Facts of a scene that questions rest on, computed once and on demand, and the geometry of their answers."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.render import Camera, Renderer
from lookact.envs.rooms.scene import Array, Box, Scene, label_text
from lookact.envs.rooms.space import FreeSpace, free_space

CAMERA = Camera.square(64)
BARELY_VISIBLE = 0.001
"""Below this share of a frame's pixels nobody would say that a thing is in view."""
CLEARLY_VISIBLE = 0.005
"""Above this share everybody would."""
MOST_FRAMES = 200
# corner numbers as in Box.corners: bit 4 is x, bit 2 is y, bit 1 is z
EDGES = np.array([(corner, corner | bit) for bit in (1, 2, 4) for corner in range(8) if not corner & bit])


@dataclass(frozen=True)
class Draft:
    """A question before it is given its place in a set."""

    things: Mapping[str, str]
    """What a wording of its type (`wordings`) speaks of."""
    ground_truth: str
    options: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Facts:
    """A scene and what can be known of it."""

    scene: Scene

    @functools.cached_property
    def by_label(self) -> dict[str, list[int]]:
        """Label to the boxes that bear it."""
        table: dict[str, list[int]] = {}
        for index, box in enumerate(self.scene.boxes):
            table.setdefault(box.label, []).append(index)
        return table

    @functools.cached_property
    def unique(self) -> list[int]:
        """The boxes whose label names only them."""
        return [indices[0] for indices in self.by_label.values() if len(indices) == 1]

    @functools.cached_property
    def centres(self) -> Array:
        """(n, 2) the boxes' middles on the floor."""
        return np.array([box.centroid[:2] for box in self.scene.boxes]).reshape(-1, 2)

    @functools.cached_property
    def gaps(self) -> Array:
        """(n, n) metres between the closest points of the boxes."""
        return box_gaps(self.scene.boxes)

    @functools.cached_property
    def space(self) -> FreeSpace:
        """Where a robot can stand."""
        return free_space(self.scene)

    @functools.cached_property
    def first_seen(self) -> NDArray[np.float64]:
        """(n, 2) the frame of the recorded walk in which each box is first visible_boxes, and first in plain view.

        Infinite for what is never seen. Long walks are thinned out evenly.
        """
        poses = self.scene.trajectory
        poses = poses[np.unique(np.linspace(0, len(poses) - 1, min(len(poses), MOST_FRAMES)).round().astype(int))]
        instance = Renderer(self.scene).render(poses, CAMERA).instance.reshape(len(poses), -1)
        count = len(self.scene.boxes)
        # one histogram over (frame, box); walls and the void fall into the last column
        cells = np.where(instance < 0, count, instance) + (count + 1) * np.arange(len(poses))[:, None]
        pixels = np.bincount(cells.ravel(), minlength=len(poses) * (count + 1)).reshape(len(poses), -1)[:, :count]
        share = pixels / instance.shape[1]
        seen = [np.where((share >= least).any(axis=0), (share >= least).argmax(axis=0), np.inf)
                for least in (BARELY_VISIBLE, CLEARLY_VISIBLE)]  # fmt: skip
        return np.stack(seen, axis=1)

    def name(self, index: int) -> str:
        """A box's label as words."""
        return label_text(self.scene.boxes[index].label)


def choose(rng: np.random.Generator, answer: str, others: list[str]) -> tuple[tuple[str, ...], str]:
    """Lettered options in random order, and the letter of the answer."""
    texts = [answer, *others]
    order = rng.permutation(len(texts))
    options = tuple(f"{chr(ord('A') + place)}. {texts[index]}" for place, index in enumerate(order))
    return options, chr(ord("A") + int(np.argmin(order)))


def polygon_area(corners: Array) -> float:
    """Area of a simple polygon (k, 2), whichever way round."""
    x, y = corners[:, 0], corners[:, 1]
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2


def wrap_degrees(angle: Array) -> Array:
    """The same angles in [-180, 180)."""
    wrapped: Array = (angle + 180.0) % 360.0 - 180.0
    return wrapped


def box_gaps(boxes: Sequence[Box]) -> Array:
    """(n, n) metres between the closest points of each two boxes; 0 where they meet.

    Two separate boxes are closest at a corner of one, or where two edges cross at a distance.
    """
    count = len(boxes)
    gaps = np.zeros((count, count))
    if count < 2:
        return gaps
    first, second = np.triu_indices(count, 1)
    corners = np.stack([box.corners() for box in boxes])
    centroids = np.stack([box.centroid for box in boxes])
    halves = np.stack([box.size for box in boxes]) / 2
    axes = np.stack([box.axes for box in boxes])
    to_boxes = _corner_gaps(corners, centroids, halves, axes)
    pairs = np.minimum(to_boxes[first, second], to_boxes[second, first])
    pairs = np.minimum(pairs, _edge_gaps(corners[first], corners[second]))
    pairs[_overlap(centroids, halves, axes, first, second)] = 0.0
    gaps[first, second] = gaps[second, first] = pairs
    return gaps


def _corner_gaps(corners: Array, centroids: Array, halves: Array, axes: Array) -> Array:
    """(n, n) from the corners of one box to the solid of another."""
    local = np.einsum("ivjx,jax->ivja", corners[:, :, None] - centroids, axes)
    outside = np.maximum(np.abs(local) - halves, 0.0)
    distance: Array = np.sqrt((outside**2).sum(axis=-1)).min(axis=1)
    return distance


def _edge_gaps(first: Array, second: Array) -> Array:
    """(p,) between the edges of boxes (p, 8, 3), where both nearest points lie inside their edges; else inf."""
    start, along = first[:, EDGES[:, 0], None], (first[:, EDGES[:, 1]] - first[:, EDGES[:, 0]])[:, :, None]
    other, across = second[:, None, EDGES[:, 0]], (second[:, EDGES[:, 1]] - second[:, EDGES[:, 0]])[:, None]
    offset = start - other
    aa, bb, ab = (along**2).sum(-1), (across**2).sum(-1), (along * across).sum(-1)
    ao, bo = (along * offset).sum(-1), (across * offset).sum(-1)
    determinant = aa * bb - ab**2
    # parallel edges have no single nearest pair; a corner is as near
    crossing = determinant > 1e-9 * aa * bb
    safe = np.where(crossing, determinant, 1.0)
    s, t = (ab * bo - bb * ao) / safe, (aa * bo - ab * ao) / safe
    inside = crossing & (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)
    between = offset + s[..., None] * along - t[..., None] * across
    distance: Array = np.where(inside, np.sqrt((between**2).sum(-1)), np.inf).min(axis=(1, 2))
    return distance


def _overlap(
    centroids: Array, halves: Array, axes: Array, first: NDArray[np.intp], second: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """(p,) whether two boxes meet: none of the 15 candidate directions separates them."""
    one, two = axes[first], axes[second]
    crossed = np.cross(one[:, :, None], two[:, None, :]).reshape(-1, 9, 3)
    directions = np.concatenate([one, two, crossed], axis=1)
    apart = np.abs(np.einsum("pdx,px->pd", directions, centroids[first] - centroids[second]))
    reach = sum(
        np.einsum("pda,pa->pd", np.abs(np.einsum("pdx,pax->pda", directions, turned)), halves[chosen])
        for turned, chosen in ((one, first), (two, second))
    )
    meet: NDArray[np.bool_] = (apart <= reach + 1e-9).all(axis=1)
    return meet
