"""A small benchmark in VSI-Bench's layout: synthetic mp4s of its three datasets, and a row of each of the ten types."""

import numpy as np
import pytest

from lookact.data.lerobot.video import write_video
from lookact.envs.rooms.vsi import Question
from lookact.text.answers import NUMERIC_TYPES, QUESTION_TYPES
from question_files import save_questions

SCENES = (("arkitscenes", "41069025"), ("scannet", "scene0144_00"), ("scannetpp", "09c1414f1b"))
FRAMES = 20


def bench_rows():
    """A row of each type about each scene, in the order of types, as the benchmark lists them."""
    options = ("A. left", "B. right", "C. back", "D. front")
    rows = [
        (kind, scene, None if kind in NUMERIC_TYPES else options, "5" if kind in NUMERIC_TYPES else "BCA"[place])
        for kind in QUESTION_TYPES
        for place, scene in enumerate(SCENES)
    ]
    return [
        Question(100 + number, *scene, kind, f"Question {number}: which, or how many?", truth, choice)
        for number, (kind, scene, choice, truth) in enumerate(rows)
    ]


@pytest.fixture(scope="session")
def vsi_layout(tmp_path_factory):
    """Holds test.parquet and {dataset}/{scene_name}.mp4; frame i of a video has the brightness 20 + 8 i."""
    folder = tmp_path_factory.mktemp("vsi-bench")
    save_questions(bench_rows(), folder / "test.parquet")
    for dataset, scene in SCENES:
        frames = [np.full((48, 64, 3), 20 + 8 * number, np.uint8) for number in range(FRAMES)]
        write_video(folder / dataset / f"{scene}.mp4", frames, fps=10)
    return folder
