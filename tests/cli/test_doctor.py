import importlib.metadata
import json
import sys

import pytest

from lookact.cli import doctor, main
from lookact.cli.doctor import ABSENT, BROKEN, OK, Finding, examine
from lookact.extras import EXTRAS

NOTHING = Finding(ABSENT, "not installed", "pip install 'lookact[serve]'")


@pytest.fixture
def three_findings(monkeypatch):
    def crash() -> Finding:
        raise OSError("a library\nis missing")

    monkeypatch.setattr(doctor, "CHECKS", {"good": lambda: Finding(OK, "fine"), "bad": crash})
    monkeypatch.setattr(doctor, "EXTRA_CHECKS", {"serve": lambda: NOTHING, "ray": lambda: Finding(OK, "ray 2.0")})
    monkeypatch.setenv("COLUMNS", "80")


def test_each_finding_stands_beside_its_sign_with_its_remedy(three_findings, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "✓ good       fine" in lines
    assert (
        lines[lines.index("✗ bad        OSError: a library is missing") + 1].strip().startswith("pip install --force")
    )
    serve = lines.index("– serve      view in the browser · serve · env-server · pref-sac with the embedded judge")
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


@pytest.mark.parametrize("name", doctor.CHECKS)
def test_a_check_answers_on_this_machine(name):
    finding = doctor.examine(doctor.CHECKS[name])
    assert finding.state in (OK, BROKEN)
    assert "\n" not in finding.detail
    assert finding.state == OK or finding.remedy


def test_embree_casts_a_ray_here():
    assert doctor.embree().state == OK


def test_torch_is_told_beside_the_device_it_was_built_for(monkeypatch):
    def told(version: str, *, cuda: bool, gpu: bool) -> Finding:
        return doctor.build_without_device(version, version, cuda=cuda, gpu=gpu)

    monkeypatch.setattr(doctor, "cuda_size", lambda: 3 * 2**30)
    assert told("2.13.0+cpu", cuda=False, gpu=False) == Finding(OK, "2.13.0+cpu")
    needless = told("2.13.0+cu130", cuda=True, gpu=False)
    assert needless.state == OK
    assert "3.0 GiB of CUDA libraries for no GPU" in needless.detail
    assert "torch==2.13.0 --index-url" in needless.remedy
    assert told("2.13.0+cpu", cuda=False, gpu=True).state == BROKEN
    assert "driver" in told("2.13.0+cu130", cuda=True, gpu=True).remedy


def test_more_threads_than_cores_need_mending(monkeypatch):
    monkeypatch.setattr(doctor, "cores", lambda: 0)
    assert doctor.cpu() == Finding(BROKEN, doctor.cpu().detail, "set OMP_NUM_THREADS=0")


def test_the_system_is_told(monkeypatch):
    monkeypatch.setattr(doctor.platform, "system", lambda: "Darwin")
    assert "tested on Linux only" in doctor.system().detail
    monkeypatch.setattr(doctor.platform, "system", lambda: "Windows")
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    assert doctor.system().state == BROKEN
    assert "WSL" in doctor.system().remedy


def test_a_python_newer_than_the_tested_is_told(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    monkeypatch.setattr(doctor.platform, "system", lambda: "Linux")
    assert "tested with 3.11 to 3.13" in doctor.system().detail


@pytest.mark.parametrize("name", [name for name in EXTRAS if name != "robot"])
def test_an_extra_answers_on_this_machine(name):
    finding = examine(doctor.EXTRA_CHECKS[name])
    assert finding.state in (OK, ABSENT, BROKEN)
    assert "\n" not in finding.detail
    assert finding.state == OK or finding.remedy


def test_a_missing_package_names_its_extra(versions):
    versions()
    assert doctor.packages("vllm") == Finding(ABSENT, "not installed", "pip install 'lookact[vllm]'")


def test_what_is_half_there_says_what_lacks(versions):
    versions(fastapi="0.1")
    assert doctor.packages("serve") == Finding(ABSENT, "fastapi 0.1, not uvicorn", "pip install 'lookact[serve]'")


def test_a_renderer_that_dies_is_a_finding(monkeypatch, versions):
    versions(mujoco="3", metaworld="3", **{"imageio-ffmpeg": "1"})
    monkeypatch.setattr(doctor, "DRAW_ONE_FRAME", "import os; os.abort()")
    assert doctor.robot().state == BROKEN
    monkeypatch.setattr(doctor, "DRAW_ONE_FRAME", "")
    assert doctor.robot() == Finding(OK, "mujoco 3, metaworld 3, imageio-ffmpeg 1; renders with egl and osmesa")


def test_where_there_are_no_wheels_the_python_is_named(monkeypatch, versions):
    versions()
    assert doctor.robot().remedy == "pip install 'lookact[robot]'"
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    assert doctor.robot().remedy.startswith("needs Python 3.11 to 3.13")


@pytest.mark.parametrize(
    ("code", "state", "told"),
    [("print('some card')", OK, "draws with some card"), ("import os; os.abort()", BROKEN, "Mesa 25 or newer")],
)
def test_maniskill_is_well_where_sapien_finds_a_device(monkeypatch, versions, code, state, told):
    versions(**{"mani-skill": "3.0", "sapien": "3.0"})
    monkeypatch.setattr(doctor, "NAME_DRAWING_DEVICE", code)
    finding = doctor.maniskill()
    assert finding.state == state
    assert told in finding.detail


def test_maniskill_that_is_not_there_wants_the_robot_too(versions):
    versions()
    assert "lookact[maniskill,robot]" in doctor.maniskill().remedy


@pytest.fixture
def versions(monkeypatch):
    """Pretends that these distributions, and no others, are installed."""

    def pretend(**installed: str) -> None:
        def version(name: str) -> str:
            if name not in installed:
                raise importlib.metadata.PackageNotFoundError(name)
            return installed[name]

        monkeypatch.setattr(doctor.importlib.metadata, "version", version)

    return pretend
