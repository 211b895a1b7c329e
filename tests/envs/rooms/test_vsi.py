"""VSI-Bench rows and scene notes, and the guard that keeps test rows out of training."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from lookact.envs.rooms.questions import ask
from lookact.envs.rooms.vsi import Question, format_prompt, load_questions, load_scene_notes
from lookact.errors import DataError
from question_files import save_questions

COUNT = Question(7, "generated", "room-1", "object_counting", "How many chairs?", "3")
SIDE = Question(
    2**53 - 1, "generated", "room-2", "object_rel_direction_easy", "Which side?", "B", ("A. left", "B. right")
)


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_questions_come_back_as_they_were(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"questions.{suffix}"
    save_questions([COUNT, SIDE], path)
    assert load_questions(path) == [COUNT, SIDE]


def test_a_benchmark_row_is_read(tmp_path: Path) -> None:
    row = {"id": 0, "dataset": "arkitscenes", "scene_name": "41069025", "question_type": "object_counting",
           "question": "How many tables?", "ground_truth": 4, "options": None, "pruned": False}  # fmt: skip
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    [question] = load_questions(tmp_path / "rows.jsonl", purpose="test")
    assert question == Question(0, "arkitscenes", "41069025", "object_counting", "How many tables?", "4")


@pytest.mark.parametrize(
    ("name", "extra", "refused"),
    [
        ("train.jsonl", {}, False),
        ("train.jsonl", {"split": "test"}, True),
        ("train.jsonl", {"dataset": "arkitscenes"}, True),
        ("train.jsonl", {"dataset": "scannetpp", "split": None}, True),
        ("train.jsonl", {"dataset": "ScanNet", "split": "train"}, False),
        ("test-00000-of-00001.jsonl", {}, True),
        ("vsi_bench.jsonl", {"split": "train"}, True),
        ("bbox_train.jsonl", {"dataset": "bboxes_arkitscenes"}, True),
        ("bbox_train.jsonl", {"dataset": "bboxes_v2/scannetpp"}, True),
        ("train.jsonl", {"scene_name": "41069025", "split": "train"}, True),
        ("latest.jsonl", {}, False),
    ],
)
def test_test_rows_are_not_for_training(tmp_path: Path, name: str, extra: dict, refused: bool) -> None:
    row = {"id": 1, "dataset": "generated", "scene_name": "s", "question_type": "object_counting", "question": "?",
           "ground_truth": "2", "options": None, **extra}  # fmt: skip
    path = tmp_path / name
    path.write_text(json.dumps({**row, "dataset": "generated", "split": None}) + "\n" + json.dumps(row) + "\n")
    assert len(load_questions(path, purpose="test")) == 2
    assert len(load_questions(path, train_on_test=True)) == 2
    if refused:
        with pytest.raises(DataError, match="train_on_test=True"):
            load_questions(path)
    else:
        assert len(load_questions(path)) == 2


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1\n')
    with pytest.raises(DataError, match="line 1 is not a JSON object"):
        load_questions(path)
    path.write_text('{"id": 1, "dataset": "generated"}\n')
    with pytest.raises(DataError, match="row 1 lacks scene_name, question_type, question, ground_truth"):
        load_questions(path)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"rows\.parquet"):
        load_questions(tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"none\.jsonl"):
        load_questions(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match="purpose 'fun'"):
        load_questions(path, purpose="fun")


def test_prompts() -> None:
    assert format_prompt(COUNT).splitlines() == [
        "How many chairs?",
        "Please answer the question using a single word or phrase.",
    ]
    first, heading, *options, last = format_prompt(SIDE).splitlines()
    assert (first, heading, options) == ("Which side?", "Options:", ["A. left", "B. right"])
    assert last == "Answer with the option's letter from the given choices directly."


def note(centroid: list[float], size: list[float], axes: np.ndarray, *, columns: bool) -> dict:
    """A box of the scene notes; its extent is that of the true rows `axes`."""
    reach = np.abs(axes).T @ np.array(size) / 2
    return {"centroid": centroid, "axesLengths": size, "normalizedAxes": (axes.T if columns else axes).ravel().tolist(),
            "min": (np.array(centroid) - reach).tolist(), "max": (np.array(centroid) + reach).tolist()}  # fmt: skip


def test_scene_notes_become_a_scene_that_can_be_asked_about(tmp_path: Path) -> None:
    cosine, sine = math.cos(0.5), math.sin(0.5)
    turned = np.array([[cosine, sine, 0], [-sine, cosine, 0], [0, 0, 1]])
    bed = note([0, 0, 0.5], [2.0, 1.0, 1.0], turned, columns=False)
    tables = [note([3, x, 0.5], [1, 1, 1], np.eye(3), columns=False) for x in (0, 2)]
    content = {"s1": {"room_size": 20.25, "room_center": [1, 2, 0], "object_counts": {"bed": 1, "table": 2},
                      "object_bbox": {"bed": [bed], "table": tables}}}  # fmt: skip
    (tmp_path / "arkitscenes_val.json").write_text(json.dumps(content))
    scene = load_scene_notes(tmp_path / "arkitscenes_val.json")["s1"]
    np.testing.assert_allclose(scene.boxes[0].axes, turned, atol=1e-12)
    assert scene.floor.mean(axis=0).tolist() == [1, 2]
    asked = {question.question_type: question.ground_truth for question in ask(scene, seed=0)}
    # nothing that needs a mesh or a walk, and no distances: only the bed has a name of its own
    assert asked == {"object_counting": "2", "object_size_estimation": "200", "room_size_estimation": "20.3"}


@pytest.mark.parametrize("columns", [False, True])
def test_the_extent_tells_rows_from_columns(tmp_path: Path, columns: bool) -> None:
    # long along Y, middling along Z, short along X
    rows = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    content = {"s": {"room_size": 9, "room_center": [0, 0, 0], "object_counts": {},
                     "object_bbox": {"bed": [note([0, 0, 0], [2, 1, 0.5], rows, columns=columns)]}}}  # fmt: skip
    (tmp_path / "x_val.json").write_text(json.dumps(content))
    [box] = load_scene_notes(tmp_path / "x_val.json")["s"].boxes
    np.testing.assert_allclose(box.corners().max(axis=0), [0.25, 1.0, 0.5])


def test_damaged_scene_notes_are_named(tmp_path: Path) -> None:
    (tmp_path / "x_val.json").write_text('{"s1": {"room_size": 3}}')
    with pytest.raises(DataError, match=r"x_val\.json: is not a file of scene notes \(KeyError: 'object_bbox'\)"):
        load_scene_notes(tmp_path / "x_val.json")
