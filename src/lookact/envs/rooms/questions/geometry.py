"""Plane and solid geometry that the answers rest on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.scene import Array, Box

# corner numbers as in Box.corners: bit 4 is x, bit 2 is y, bit 1 is z
EDGES = np.array([(corner, corner | bit) for bit in (1, 2, 4) for corner in range(8) if not corner & bit])


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
