"""Counts, distances, sizes and areas, answered a second time by other means."""

import itertools
import re

import numpy as np
import pytest

from lookact.envs.rooms.questions import ask
from lookact.envs.rooms.scene import Box, Scene


def box(label: str, centroid: list[float], size: list[float]) -> Box:
    return Box(label, label, np.array(centroid, dtype=float), np.array(size, dtype=float), np.eye(3))


def bare(boxes: list[Box], floor: list[list[float]]) -> Scene:
    """A scene of boxes alone."""
    return Scene("bare", np.zeros((0, 3), np.float32), np.zeros((0, 3), np.int32), np.zeros((0, 3), np.uint8),
                 np.zeros(0, np.int32), tuple(boxes), np.array(floor, dtype=float), np.zeros((0, 4, 4)))  # fmt: skip


ROOM = bare(
    [
        box("bed", [1, 1, 0.25], [2, 1.5, 0.5]),
        box("tv_monitor", [4, 1, 1.25], [0.1, 1.2, 0.5]),
        *(box("chair", [n, 4, 0.5], [0.5, 0.5, 1]) for n in (1, 2, 3)),
    ],
    [[0, 0], [5, 0], [5, 5], [2, 5], [2, 4], [0, 4]],
)


def answers(kind: str) -> dict[str, str]:
    return {question.question: question.ground_truth for question in ask(ROOM, seed=0, types=[kind], per_type=9)}


def test_counts_by_hand() -> None:
    [(text, answer)] = answers("object_counting").items()
    assert "chair(s)" in text
    assert answer == "3"


def test_distances_by_hand() -> None:
    # only bed and screen have a name of their own: 1.95 across, 0.5 up, and level with one another along Y
    [(text, answer)] = answers("object_abs_distance").items()
    assert {"bed", "tv monitor"} <= set(re.findall("bed|tv monitor", text))
    assert answer == f"{np.hypot(1.95, 0.5):.1f}" == "2.0"


def test_sizes_by_hand() -> None:
    sizes = {
        re.search("of the ([a-z ]+), measured", text)[1]: answer
        for text, answer in answers("object_size_estimation").items()
    }
    assert sizes == {"bed": "200", "tv monitor": "120"}


def test_floor_by_hand() -> None:
    assert list(answers("room_size_estimation").values()) == ["23.0"]


def test_touching_things_have_no_distance() -> None:
    near = bare([box("bed", [1, 1, 0.5], [1, 1, 1]), box("table", [2.2, 1, 0.5], [1, 1, 1])], [[0, 0], [4, 0], [0, 4]])
    assert ask(near, seed=0, types=["object_abs_distance"]) == []


def named(scene: Scene, name: str) -> list[Box]:
    return [box for box in scene.boxes if box.label.replace("_", " ") == name]


def strip_area(corners: np.ndarray) -> float:
    """Area of a polygon cut into level strips at its corners."""
    area = 0.0
    for low, high in itertools.pairwise(np.unique(corners[:, 1])):
        middle = (low + high) / 2
        cuts = sorted(
            x0 + (middle - y0) * (x1 - x0) / (y1 - y0)
            for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0))
            if (y0 - middle) * (y1 - middle) < 0
        )
        area += (high - low) * sum(b - a for a, b in zip(cuts[::2], cuts[1::2]))
    return area


def sampled_gap(first: Box, second: Box) -> float:
    """Distance of two boxes by ever finer grids of points on the one, each measured to the other."""
    low, high = -first.size / 2, first.size / 2
    for _ in range(12):
        grid = np.stack(np.meshgrid(*np.linspace(low, high, 5).T), axis=-1).reshape(-1, 3)
        local = (first.centroid + grid @ first.axes - second.centroid) @ second.axes.T
        distances = np.linalg.norm(np.maximum(np.abs(local) - second.size / 2, 0), axis=1)
        best, step = grid[distances.argmin()], (high - low) / 4
        low, high = np.maximum(best - step, -first.size / 2), np.minimum(best + step, first.size / 2)
    return float(distances.min())


@pytest.mark.slow
def test_counts_hold(asked) -> None:
    for scene, question in asked["object_counting"]:
        members = len(named(scene, re.search(r"many (.*)\(s\) are", question.question)[1]))
        assert question.ground_truth == str(members)
        assert members > 1 or len({box.label for box in scene.boxes}) == len(scene.boxes)


@pytest.mark.slow
def test_distances_hold(asked) -> None:
    for scene, question in asked["object_abs_distance"]:
        names = re.search("between the (.*) and the (.*) .in meters", question.question).groups()
        (first,), (second,) = (named(scene, name) for name in names)
        assert sampled_gap(first, second) == pytest.approx(float(question.ground_truth), abs=0.051)


@pytest.mark.slow
def test_sizes_hold(asked) -> None:
    for scene, question in asked["object_size_estimation"]:
        [thing] = named(scene, re.search(r"height\) of the (.*), measured", question.question)[1])
        corners = thing.corners()
        # corners 1, 2 and 4 are the neighbours of corner 0
        longest = max(np.linalg.norm(corners[neighbour] - corners[0]) for neighbour in (1, 2, 4))
        assert float(question.ground_truth) == pytest.approx(100 * longest, abs=0.501)


@pytest.mark.slow
def test_floors_hold(asked) -> None:
    for scene, question in asked["room_size_estimation"]:
        assert float(question.ground_truth) == pytest.approx(strip_area(scene.floor), abs=0.0501)


@pytest.mark.parametrize("off", [0.0, 1e-12, -1e-12])
def test_halves_are_told_upwards_whichever_way_they_were_rounded(off: float) -> None:
    scene = bare(
        [box("bed", [1, 1, 0.25], [2.005 + off, 1.5, 0.5])], [[0, 0], [4.5 + off, 0], [4.5 + off, 4.5], [0, 4.5]]
    )
    told = {question.question_type: question.ground_truth for question in ask(scene, seed=0)}
    assert (told["object_size_estimation"], told["room_size_estimation"]) == ("201", "20.3")
