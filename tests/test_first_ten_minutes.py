"""A newcomer's first ten minutes, as docs/first-ten-minutes.md tells them: the same commands, and what came of each."""

import json
import re
import runpy
from pathlib import Path

import pytest

import lookact

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/first-ten-minutes.md"
RECORDER = runpy.run_path(str(ROOT / "tools/record_session.py"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("newcomer")


@pytest.fixture(scope="module")
def session(folder):
    """What was said, by the command's first word; the recording is left beside the runs, to be read."""
    page = PAGE.read_text(encoding="utf-8")
    spoken = list(RECORDER["record"](page, folder))
    (folder / PAGE.name).write_text(RECORDER["rewrite"](page, spoken), encoding="utf-8")
    assert [(one.command, one.code) for one in spoken] == [(command, 0) for command in RECORDER["commands"](page)]
    return {one.command.split()[1]: one.output for one in spoken}


def embedded(page: str) -> dict:
    """The data inside an exported page."""
    return json.loads(re.search(r'id="embedded">(.*?)</script>', page, re.DOTALL).group(1))


def test_the_page_goes_from_set_up_to_the_viewer():
    words = [command.split()[1] for command in RECORDER["commands"](PAGE.read_text(encoding="utf-8"))]
    assert words == ["--version", "doctor", "demo", "train", "eval", "view"]


def test_long_output_is_shown_by_its_ends():
    lines = [f"line {number}" for number in range(100)]
    shown = RECORDER["shortened"]("\n".join(lines)).splitlines()
    assert (shown[0], shown[12], shown[-1]) == ("line 0", "… 72 lines more …", "line 99")


@pytest.mark.slow
def test_it_is_installed_and_the_doctor_finds_what_the_recipe_needs(session):
    assert session["--version"].strip() == f"lookact {lookact.__version__}"
    found = {line.split()[1]: line[0] for line in session["doctor"].splitlines() if line.startswith(("✓", "✗", "–"))}
    assert {found[part] for part in ("system", "torch", "embree", "base")} == {"✓"}


@pytest.mark.slow
def test_training_leaves_a_run_that_learned(session, folder):
    run = folder / "runs/nav-rloo/debug-seed0"
    assert {"before", "after"} <= set(json.loads((run / "result.json").read_text()))
    assert (run / "best").is_dir()
    assert "lookact view" in session["train"]


@pytest.mark.slow
def test_evaluation_tells_a_rate_and_draws_its_episodes(session, folder):
    assert "success" in session["eval"]
    assert (folder / "runs/nav-rloo/eval/sheet.png").stat().st_size > 1000


@pytest.mark.slow
def test_the_exported_page_has_curves_and_episodes_of_training_and_evaluation(session, folder):
    data = embedded((folder / "page.html").read_text(encoding="utf-8"))
    assert data["left_out"] == []
    assert "nav-rloo/debug-seed0" in data["run"]
    assert all(data["episodes"].values())
    assert {store.split("/")[1] for store in data["episodes"]} >= {"debug-seed0", "eval"}
    assert all(episode["turns"] for episode in data["episode"].values())
    assert len(data["picture"]) >= len(data["episode"])


@pytest.mark.slow
def test_the_recording_reads_as_it_happened(session, folder):
    recording = (folder / PAGE.name).read_text(encoding="utf-8")
    assert f"$ lookact --version\nlookact {lookact.__version__}\n" in recording
    assert RECORDER["commands"](recording) == RECORDER["commands"](PAGE.read_text(encoding="utf-8"))
