import json

import httpx
import numpy as np
import pytest

from lookact.algorithms.judge_diary import JudgeDiary
from lookact.types import Preference
from lookact.viewer import judge_pairs
from lookact.viewer.export import export
from lookact.viewer.folder import find
from lookact.viewer.judge_pairs import list_pairs
from lookact.viewer.runs import run_detail


@pytest.fixture
def judged_run(tmp_path, write_run):
    """A run whose judge was asked about two pairs, and was right on the first."""
    run = write_run(tmp_path / "pref-sac/a", [{"step": 1}])
    dark, light = np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 200, np.uint8)
    told = [Preference(dark, light, 1, "lighter\n---\n1"), Preference(light, dark, 1, "alike\n---\n1")]
    diary = JudgeDiary(run / "judge")
    diary.extend(3, "to open the drawer", ["describe", "decide"], told, np.array([[0.5, 2.0], [4.0, 1.0]]))
    return tmp_path


def test_a_pair_has_its_pictures_words_verdict_and_truth(judged_run):
    first, second = list_pairs(judged_run, "pref-sac/a")
    assert first == {
        "round": 3,
        "pair": 0,
        "pictures": [f"pref-sac/a/judge/pictures/00003-0000-{side}.jpg" for side in range(2)],
        "goal": "to open the drawer",
        "prompts": ["describe", "decide"],
        "replies": ["lighter", "1"],
        "verdict": 1,
        "truth": 1,
        "scores": [0.5, 2.0],
        "gap": 1.5,
    }
    assert (second["verdict"], second["truth"], second["gap"]) == (1, 0, 3.0)


def test_what_is_no_line_of_a_diary_is_passed_over_and_only_the_last_are_listed(judged_run, monkeypatch):
    path = judged_run / "pref-sac/a/judge/queries.jsonl"
    whole = path.read_text().splitlines()
    odd = {"images": ["a"], "true_scores": [1, 2, 3]}
    path.write_text("\n".join([whole[0], "torn {", "[]", json.dumps(odd), "9" * 5000, whole[1]]) + "\n")
    assert [row["pair"] for row in list_pairs(judged_run, "pref-sac/a")] == [0, 1]
    monkeypatch.setattr(judge_pairs, "MAX_PAIRS", 1)
    assert [row["pair"] for row in list_pairs(judged_run, "pref-sac/a")] == [1]


def test_a_run_without_a_diary_has_no_pairs_and_a_link_is_not_followed(judged_run, write_run):
    write_run(judged_run / "pref-sac/b", [{"step": 1}])
    assert list_pairs(judged_run, "pref-sac/b") == []
    (judged_run / "pref-sac/b/judge").symlink_to(judged_run / "pref-sac/a/judge")
    assert list_pairs(judged_run, "pref-sac/b") == []
    found = find(judged_run)
    assert run_detail(judged_run, "pref-sac/a", found)["judged"]
    assert not run_detail(judged_run, "pref-sac/b", found)["judged"]


def test_the_server_lists_pairs_and_gives_their_pictures(judged_run, serve_folder):
    url = serve_folder(judged_run)
    rows = httpx.get(f"{url}/api/pairs", params={"place": "pref-sac/a"}).json()
    assert rows == list_pairs(judged_run, "pref-sac/a")
    seen = httpx.get(f"{url}/api/media", params={"place": rows[0]["pictures"][1]})
    assert (seen.status_code, seen.headers["content-type"]) == (200, "image/jpeg")


def test_an_exported_file_holds_pairs_and_their_pictures(judged_run):
    page, left_out = export(judged_run, most_bytes=1 << 20)
    data = json.loads(page.partition('id="embedded">')[2].partition("</script>")[0])
    (pairs,) = data["pairs"].values()
    assert left_out == []
    assert all(place in data["media"] for pair in pairs for place in pair["pictures"])
