import json
import sys

import pytest

from lookact.cli import checks, doctor, main
from lookact.cli.checks import ABSENT, BROKEN, OK, Finding
from lookact.extras import EXTRAS

NOTHING = Finding(ABSENT, "not installed", "pip install 'lookact[serve]'")


@pytest.fixture
def three_findings(monkeypatch):
    def crash() -> Finding:
        raise OSError("a library\nis missing")

    monkeypatch.setattr(doctor, "CHECKS", {"good": lambda: Finding(OK, "fine"), "bad": crash})
    monkeypatch.setattr(doctor, "EXTRA_CHECKS", {"serve": lambda: NOTHING, "ray": lambda: Finding(OK, "ray 2.0")})
    monkeypatch.setenv("COLUMNS", "80")


def test_each_finding_stands_beside_its_sign_with_its_remedy(three_findings, capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "✓ good       fine" in lines
    assert (
        lines[lines.index("✗ bad        OSError: a library is missing") + 1].strip().startswith("pip install --force")
    )
    serve = lines.index("– serve      view in the browser · serve · pref-sac with the embedded judge")
    assert lines[serve + 1 :] == [
        "             pip install 'lookact[serve]'",
        "✓ ray        train --ray.workers N",
        "             ray 2.0",
    ]


def test_nothing_is_wider_than_the_terminal(three_findings, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "CHECKS", {"long": lambda: Finding(OK, "word " * 60)})
    for columns in (80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["doctor"]) == 0
        widths = [len(line) for line in capsys.readouterr().out.splitlines()]
        assert max(widths) <= min(columns, doctor.WIDEST)


def test_as_json(three_findings, capsys):
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["machine"]["good"] == {"state": OK, "detail": "fine", "remedy": ""}
    assert told["machine"]["bad"]["state"] == BROKEN
    assert told["extras"]["serve"]["remedy"] == "pip install 'lookact[serve]'"
    assert told["extras"]["serve"]["enables"] == list(EXTRAS["serve"].enables)
    assert "nav-rloo" in told["base"]["enables"]


def test_every_extra_has_a_line():
    assert doctor.EXTRA_CHECKS.keys() == EXTRAS.keys()


@pytest.mark.parametrize("name", checks.CHECKS)
def test_a_check_answers_on_this_machine(name):
    finding = doctor.examine(checks.CHECKS[name])
    assert finding.state in (OK, BROKEN)
    assert "\n" not in finding.detail
    assert finding.state == OK or finding.remedy


def test_embree_casts_a_ray_here():
    assert checks.embree().state == OK


def test_torch_is_told_beside_the_device_it_was_built_for(monkeypatch):
    def told(version: str, *, cuda: bool, gpu: bool) -> Finding:
        return checks.build_without_device(version, version, cuda=cuda, gpu=gpu)

    monkeypatch.setattr(checks, "cuda_size", lambda: 3 * 2**30)
    assert told("2.13.0+cpu", cuda=False, gpu=False) == Finding(OK, "2.13.0+cpu")
    needless = told("2.13.0+cu130", cuda=True, gpu=False)
    assert needless.state == OK
    assert "3.0 GiB of CUDA libraries for no GPU" in needless.detail
    assert "torch==2.13.0 --index-url" in needless.remedy
    assert told("2.13.0+cpu", cuda=False, gpu=True).state == BROKEN
    assert "driver" in told("2.13.0+cu130", cuda=True, gpu=True).remedy


def test_more_threads_than_cores_need_mending(monkeypatch):
    monkeypatch.setattr(checks, "cores", lambda: 0)
    assert checks.cpu() == Finding(BROKEN, checks.cpu().detail, "set OMP_NUM_THREADS=0")


def test_the_system_is_told(monkeypatch):
    monkeypatch.setattr(checks.platform, "system", lambda: "Darwin")
    assert "tested on Linux only" in checks.system().detail
    monkeypatch.setattr(checks.platform, "system", lambda: "Windows")
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: None)
    assert checks.system().state == BROKEN
    assert "WSL" in checks.system().remedy


def test_a_python_newer_than_the_tested_is_told(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    monkeypatch.setattr(checks.platform, "system", lambda: "Linux")
    assert "tested with 3.11 to 3.13" in checks.system().detail
