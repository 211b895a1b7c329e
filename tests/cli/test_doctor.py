import json
import sys

import pytest

from lookact.cli import checks, doctor, main
from lookact.cli.checks import ABSENT, BROKEN, OK, Finding


def test_each_finding_is_one_line_with_its_remedy(monkeypatch, capsys):
    def crash() -> Finding:
        raise OSError("a library\nis missing")

    findings = {
        "good": lambda: Finding(OK, "fine"),
        "later": lambda: Finding(ABSENT, "not installed", "pip install it"),
        "bad": crash,
    }
    monkeypatch.setattr(doctor, "CHECKS", findings)
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "✓ good          fine",
        "– later         not installed; pip install it",
        "✗ bad           OSError: a library is missing; reinstall with make setup",
    ]
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["bad"]["state"] == BROKEN
    assert report["good"] == {"state": OK, "detail": "fine", "remedy": ""}


@pytest.mark.parametrize(
    "name", ["python", "torch", "memory", "disk", "embree", "maniskill", "ffmpeg", "vllm", "ray", "wandb"]
)
def test_a_check_answers_on_this_machine(name):
    finding = doctor.examine(checks.CHECKS[name])
    assert finding.state in (OK, ABSENT, BROKEN)
    assert "\n" not in finding.detail
    assert finding.state == OK or finding.remedy


def test_embree_casts_a_ray_here():
    assert checks.embree().state == OK


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setattr(checks.importlib.metadata, "version", _absent)
    assert checks.vllm() == Finding(ABSENT, "not installed", 'pip install "lookact[vllm]"')


def test_a_renderer_that_dies_is_a_finding(monkeypatch):
    pytest.importorskip("mujoco")
    monkeypatch.setattr(checks, "DRAW_ONE_FRAME", "import os; os.abort()")
    assert checks.mujoco().state == BROKEN


@pytest.mark.parametrize("check", [checks.mujoco, checks.maniskill])
def test_a_package_that_is_not_there_is_absent(monkeypatch, check):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: None)
    assert check().state == ABSENT


@pytest.mark.parametrize(
    ("code", "state", "told"),
    [("print('some card')", OK, "draws with some card"), ("import os; os.abort()", BROKEN, "Mesa 25 or newer")],
)
def test_maniskill_is_well_where_sapien_finds_a_device(monkeypatch, code, state, told):
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(checks.importlib.metadata, "version", lambda name: "3.0")
    monkeypatch.setattr(checks, "NAME_DRAWING_DEVICE", code)
    finding = checks.maniskill()
    assert finding.state == state
    assert told in finding.detail


def _absent(name: str) -> str:
    raise checks.importlib.metadata.PackageNotFoundError(name)
