"""What the questions of one scene have in common, worked out once and only when asked for."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.questions.geometry import box_gaps
from lookact.envs.rooms.render import Camera, Renderer
from lookact.envs.rooms.scene import Array, Scene
from lookact.envs.rooms.space import FreeSpace, free_space

CAMERA = Camera.square(64)
GLIMPSE = 0.001
"""Below this share of a frame's pixels nobody would say that a thing is in view."""
PLAIN = 0.005
"""Above this share everybody would."""
MOST_FRAMES = 200


@dataclass(frozen=True)
class Draft:
    """A question before it is given its place in a set."""

    question: str
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
        """(n, 2) the frame of the recorded walk in which each box is first glimpsed, and first in plain view.

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
                for least in (GLIMPSE, PLAIN)]  # fmt: skip
        return np.stack(seen, axis=1)

    def name(self, index: int) -> str:
        """How a box is spoken of."""
        return spoken(self.scene.boxes[index].label)


def spoken(label: str) -> str:
    """A label as words."""
    return label.replace("_", " ")


def choose(rng: np.random.Generator, answer: str, others: list[str]) -> tuple[tuple[str, ...], str]:
    """Lettered options in random order, and the letter of the answer."""
    texts = [answer, *others]
    order = rng.permutation(len(texts))
    options = tuple(f"{chr(ord('A') + place)}. {texts[index]}" for place, index in enumerate(order))
    return options, chr(ord("A") + int(np.argmin(order)))
