import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from lookact.algorithms.judge_diary import JudgeDiary
from lookact.cli import main
from lookact.cli.plot import labelled
from lookact.types import Preference

LOG = "ground_truth_score_1,ground_truth_score_2,vlm_predicted_label,timestamp,train_iter\n1,0,0,0,0\n0,2,0,0,0\n"


@pytest.fixture(autouse=True)
def runs(tmp_path):
    for name, slope in (("a", 0.1), ("b", 0.2)):
        (tmp_path / name).mkdir()
        lines = [json.dumps({"step": step, "eval/success_rate": slope * step, "x": 1}) for step in range(4)]
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "eval.csv").write_text("step,success_rate\n0,0.1\n3,0.5\n")
    (tmp_path / "log.csv").write_text(LOG)


def test_curves_are_drawn_from_folders_and_tables(capsys):
    assert main(["plot", "curve", "a", "b", "eval.csv", "--out", "deep/two.png"]) == 0
    assert main(["plot", "curve", "same=a", "same=b", "--mark", "random=0.1", "--window", "2", "--out", "one.pdf"]) == 0
    assert capsys.readouterr().out == "drew deep/two.png\ndrew one.pdf\n"
    assert PIL.Image.open("deep/two.png").width > 300
    assert Path("one.pdf").read_bytes().startswith(b"%PDF")


def test_a_judge_is_drawn(capsys):
    assert main(["plot", "judge", "log.csv", "--title", "a judge", "--bins", "2"]) == 0
    assert capsys.readouterr().out == "drew judge.png\n"
    assert Path("judge.png").exists()


def test_pairs_and_tasks_are_drawn(capsys):
    image = np.zeros((8, 8, 3), np.uint8)
    told = [Preference(image, image + 9, 1, "1")]
    JudgeDiary(Path("a/judge")).extend(0, "to shine", ["which?"], told, np.array([[0.0, 1.0]]))
    assert main(["plot", "pairs", "a", "--show", "right", "--output", "pairs.jpg"]) == 0
    assert main(["plot", "tasks", "Pendulum-v1", "--count", "2"]) == 0
    assert capsys.readouterr().out == "drew pairs.jpg\ndrew tasks.png\n"
    assert PIL.Image.open("pairs.jpg").format == "JPEG"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["curve", "a", "--key", "success_rate"], "a holds no success_rate: did you mean eval/success_rate?"),
        (["curve", "none"], "none does not exist: check the path"),
        (["curve", "log.csv"], "log.csv has no column step"),
        (["curve", "a", "--out", "curve.what"], "cannot draw curve.what: name it .png or .jpg or .pdf"),
        (["curve", "a", "--window", "0"], "'0' is not a whole number of at least 1"),
        (["curve", "a", "--mark", "random"], "'random' is no mark: write it like random=0.12"),
        (["pairs", "b"], "no judge's diary in b: give the folder of a pref-sac run"),
        (["judge", "eval.csv"], "eval.csv has no column ground_truth_score_1"),
        (["jugde", "log.csv"], "invalid choice: 'jugde'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, line, capsys):
    assert main(["plot", *words]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1


def test_a_name_is_what_stands_before_the_sign_unless_it_is_part_of_the_path():
    assert labelled("rloo=runs/1") == ("rloo", Path("runs/1"))
    assert labelled("runs/1") == ("1", Path("runs/1"))
    assert labelled("runs/1/metrics.jsonl") == ("1", Path("runs/1/metrics.jsonl"))
    assert labelled("eval.csv") == ("eval", Path("eval.csv"))
    Path("x=y").mkdir()
    assert labelled("x=y") == ("x=y", Path("x=y"))
