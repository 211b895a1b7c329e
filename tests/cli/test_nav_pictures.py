import json
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest

from lookact.cli.nav_pictures import chosen, draw_curve, draw_sheet
from lookact.recipes.nav_config import PRESETS
from lookact.recipes.nav_world import make_plans

LEFT = 'I see it far ahead. {"rotation_angle_degrees": 30, "forward_meters": 0.5}'


def outcomes(courses) -> list[bool]:
    return [course["success"] for _, course in courses]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([True, True, True, False], [True, True, False]),
        ([True, True, True, True], [True, True, True]),
        ([False, False, True, False], [True, False, False]),
        ([False], [False]),
    ],
)
def test_a_failure_is_shown_if_there_is_one(given, shown):
    assert outcomes(chosen([(None, {"success": success}) for success in given])) == shown


def test_a_sheet_is_drawn_of_what_an_evaluation_kept(tmp_path):
    cfg = PRESETS["debug"]
    plan = make_plans(cfg.seed, "test", groups=2)[1]
    course = {"success": False, "turns": [{"reply": LEFT}, {"reply": "no action here"}]}
    (tmp_path / f"{plan.id}.json").write_text(json.dumps(course))
    draw_sheet(cfg, tmp_path, tmp_path / "sheet.png", episodes=2)
    sheet = np.asarray(PIL.Image.open(tmp_path / "sheet.png"))
    assert sheet.shape[2] == 3
    assert sheet.std() > 20
    # an evaluation of fewer episodes did not keep this one
    draw_sheet(cfg, tmp_path, tmp_path / "none.png", episodes=1)
    assert not (tmp_path / "none.png").exists()


def test_the_curve_shows_both_rates_and_the_marks(tmp_path):
    lines = [{"step": step, "rollout/success_rate": step / 9} for step in range(1, 9)]
    lines[3]["eval/success_rate"] = 0.4
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    draw_curve(tmp_path, tmp_path / "plots/curve.png", marks=[("random", 0.05)])
    assert (tmp_path / "plots/curve.png").stat().st_size > 1000


@pytest.mark.slow
def test_the_whole_demo_in_two_processes(tmp_path):
    command = [sys.executable, "-m", "lookact", "demo", "--preset", "debug", "--processes", "2", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(result["after RL"]) == {"greedy", "sampled"}
    assert result["random"]["sampled"]["valid_action_rate"] == 1.0
    assert {"learning to see", "imitating", "training steps"} <= set(result["seconds"])
    for picture in result["pictures"]:
        assert (tmp_path / picture).stat().st_size > 1000
