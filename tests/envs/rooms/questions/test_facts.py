"""Names, options and what is told apart by name."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from lookact.envs.rooms.generate import RoomStyle, generate_room
from lookact.envs.rooms.questions.facts import Facts, box_gaps, choose, polygon_area, wrap_degrees
from lookact.envs.rooms.scene import Box, label_text


def test_the_letter_points_at_the_answer_and_is_every_letter_alike() -> None:
    rng = np.random.default_rng(0)
    letters = Counter()
    for _ in range(3000):
        options, letter = choose(rng, "yes", ["no", "never"])
        assert sorted(option[3:] for option in options) == ["never", "no", "yes"]
        assert f"{letter}. yes" in options
        letters[letter] += 1
    assert set(letters) == set("ABC")
    assert max(letters.values()) < 1100


def test_labels_as_words() -> None:
    assert label_text("tv_monitor") == "tv monitor"


def test_names_of_one_and_of_several() -> None:
    scene = generate_room(2, RoomStyle(objects=(8, 8), classes=("chair", "bed", "table"), distinct=False, side=(6, 8)))
    facts = Facts(scene)
    labels = [box.label for box in scene.boxes]
    assert {label: len(members) for label, members in facts.by_label.items()} == Counter(labels)
    assert all(labels.count(labels[index]) == 1 for index in facts.unique)
    np.testing.assert_array_equal(facts.centres, [box.centroid[:2] for box in scene.boxes])


def test_a_glimpse_comes_no_later_than_plain_view() -> None:
    seen = Facts(generate_room(4)).first_seen
    assert (seen[:, 0] <= seen[:, 1]).all()
    assert np.isfinite(seen[:, 1]).any()


def box(centroid: list[float], size: list[float], turn: Rotation | None = None) -> Box:
    axes = np.eye(3) if turn is None else turn.as_matrix()
    return Box("", "", np.array(centroid, dtype=float), np.array(size, dtype=float), axes)


def gap(first: Box, second: Box) -> float:
    gaps = box_gaps([first, second])
    assert gaps[0, 1] == gaps[1, 0]
    assert gaps[0, 0] == gaps[1, 1] == 0
    return float(gaps[0, 1])


CUBE = box([0, 0, 0], [1, 1, 1])


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (box([3, 0, 0], [1, 1, 1]), 2.0),
        (box([3, 0.3, -0.2], [2, 4, 4]), 1.5),
        (box([2, 2, 0], [1, 1, 1]), math.sqrt(2)),
        (box([2, 2, 2], [1, 1, 1]), math.sqrt(3)),
        # a corner's edge towards the cube's face
        (box([3, 0, 0], [1, 1, 1], Rotation.from_euler("z", 45, degrees=True)), 2.5 - math.sqrt(0.5)),
        (box([1, 0, 0], [1, 1, 1]), 0.0),
        (box([0.1, 0, 0], [0.2, 0.2, 0.2]), 0.0),
        # a rod through the cube: no corner of either lies in the other
        (box([0, 0, 0], [5, 0.1, 0.1]), 0.0),
    ],
)
def test_gaps_by_hand(other: Box, expected: float) -> None:
    assert gap(CUBE, other) == pytest.approx(expected, abs=1e-12)
    assert gap(other, CUBE) == pytest.approx(expected, abs=1e-12)


def test_two_edges_that_cross_at_a_distance() -> None:
    # one cube stands on an edge along Y, the other hangs on an edge along X: 3 - 2 * sqrt(1/2) between the edges
    low = box([0, 0, 0], [1, 1, 1], Rotation.from_euler("y", 45, degrees=True))
    high = box([0, 0, 3], [1, 1, 1], Rotation.from_euler("x", 45, degrees=True))
    assert gap(low, high) == pytest.approx(3 - math.sqrt(2))


def project(points: np.ndarray, onto: Box) -> np.ndarray:
    local = np.clip((points - onto.centroid) @ onto.axes.T, -onto.size / 2, onto.size / 2)
    return onto.centroid + local @ onto.axes


def test_gaps_of_tilted_boxes_match_projections_to_and_fro() -> None:
    rng = np.random.default_rng(0)
    boxes = [box(rng.uniform(-1, 1, 3), rng.uniform(0.2, 1.5, 3), turn) for turn in Rotation.random(12, random_state=1)]
    gaps = box_gaps(boxes)
    for i in range(12):
        for j in range(i):
            points = boxes[i].centroid
            for _ in range(300):
                other = project(points, boxes[j])
                points = project(other, boxes[i])
            assert gaps[i, j] == pytest.approx(float(np.linalg.norm(points - other)), abs=2e-3)
    assert 1 < (gaps[np.triu_indices(12, 1)] == 0).sum() < 60


def test_gaps_of_few_boxes() -> None:
    assert box_gaps([]).shape == (0, 0)
    assert box_gaps([CUBE]).tolist() == [[0.0]]


def test_areas() -> None:
    ell = np.array([[0, 0], [4, 0], [4, 1], [1, 1], [1, 3], [0, 3]], dtype=float)
    assert polygon_area(ell) == 6.0
    assert polygon_area(ell[::-1]) == 6.0
    assert polygon_area(np.array([[0, 0], [2, 0], [0, 3]], dtype=float)) == 3.0


def test_wrapped_angles() -> None:
    assert wrap_degrees(np.array([0.0, 190, -190, 180, 540, -90])).tolist() == [0, -170, 170, -180, -180, -90]
