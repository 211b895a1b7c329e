import json

import numpy as np
import pytest

from lookact.algorithms.judge_diary import JudgeDiary, read_diary
from lookact.data.pictures import decode_picture
from lookact.errors import DataError
from lookact.types import Preference


def grey(light):
    return np.full((16, 16, 3), light, np.uint8)


def write_round(diary, number):
    told = [
        Preference(grey(10), grey(200), 1, "The first is dark.\n---\n1"),
        Preference(grey(200), grey(10), -1, "I can't tell.\n---\n-1"),
    ]
    diary.extend(number, "to shine", ["describe {goal}", "decide {goal}"], told, np.array([[0.5, 2.0], [3.0, 3.0]]))


def test_a_diary_holds_pictures_questions_words_and_the_truth(tmp_path):
    write_round(JudgeDiary(tmp_path / "judge"), 7)
    first, second = read_diary(tmp_path)
    assert (first.round, first.pair, first.goal) == (7, 0, "to shine")
    assert first.prompts == ["describe {goal}", "decide {goal}"]
    assert first.replies == ["The first is dark.", "1"]
    assert (first.verdict, first.truth, first.true_scores) == (1, 1, [0.5, 2.0])
    assert (second.verdict, second.truth) == (-1, -1)
    lights = []
    for path in (*first.images, *second.images):
        with open(path, "rb") as file:  # noqa: PTH123
            lights.append(round(decode_picture(file.read()).mean()))
    assert lights == [10, 200, 200, 10]


def test_lines_beyond_a_checkpoint_are_written_again(tmp_path):
    diary = JudgeDiary(tmp_path)
    for number in range(3):
        write_round(diary, number)
    diary.keep(2)
    write_round(diary, 1)
    assert [(judged.round, judged.pair) for judged in read_diary(tmp_path)] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_what_is_no_diary_is_refused(tmp_path):
    with pytest.raises(DataError, match="no judge's diary"):
        read_diary(tmp_path)
    (tmp_path / "queries.jsonl").write_text(json.dumps({"images": []}) + "\n")
    with pytest.raises(DataError, match="line 1 is no line"):
        read_diary(tmp_path)
