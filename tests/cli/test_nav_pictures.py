import json
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest

from lookact.cli.nav_pictures import arrived, chosen, draw_curve, draw_sheet
from lookact.data.store import EpisodeStore
from lookact.types import Decision, Episode, FloorMap, Observation, Turn

LEFT = 'I see it far ahead. {"rotation_angle_degrees": 30, "forward_meters": 0.5}'


def episode(name="a", *, success=True, room=None):
    none = np.zeros(0, np.float32)
    seen = Observation("Find the bed.", {"head": np.full((8, 8, 3), 90, np.uint8)}, state=np.array([1, 2, 0, 1], "f4"))
    info = {"success": success, "question": "Find the bed."}
    turns = [Turn(seen, Decision(said, none, none > 0), 0.0, False, False, info) for said in (LEFT, "no action here")]
    return Episode(name, 0, 0, tuple(turns), last=seen, floor_map=room)


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
    assert [arrived(each) for each in chosen([episode(success=success) for success in given])] == shown


def test_a_sheet_is_drawn_of_what_an_evaluation_kept(tmp_path):
    store = EpisodeStore(tmp_path / "kept")
    draw_sheet(tmp_path / "kept", tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
    store.add(Episode("broken", 0, 0, (), error="no such room"))
    store.add(episode("a", room=FloorMap(np.full((60, 60, 3), 200, np.uint8), (1.0, 2.0), 10.0)))
    draw_sheet(tmp_path / "kept", tmp_path / "plots/sheet.png")
    sheet = np.asarray(PIL.Image.open(tmp_path / "plots/sheet.png"))
    assert sheet.shape[2] == 3
    assert sheet.std() > 20


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
