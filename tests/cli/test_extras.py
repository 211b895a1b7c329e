import importlib.metadata
import sys

import pytest

from lookact.cli import extras
from lookact.cli.checks import ABSENT, BROKEN, OK, Finding
from lookact.cli.doctor import examine
from lookact.extras import EXTRAS


@pytest.mark.parametrize("name", [name for name in EXTRAS if name != "robot"])
def test_an_extra_answers_on_this_machine(name):
    finding = examine(extras.EXTRA_CHECKS[name])
    assert finding.state in (OK, ABSENT, BROKEN)
    assert "\n" not in finding.detail
    assert finding.state == OK or finding.remedy


def test_a_missing_package_names_its_extra(versions):
    versions()
    assert extras.packages("vllm") == Finding(ABSENT, "not installed", "pip install 'lookact[vllm]'")


def test_what_is_half_there_says_what_lacks(versions):
    versions(fastapi="0.1")
    assert extras.packages("serve") == Finding(ABSENT, "fastapi 0.1, not uvicorn", "pip install 'lookact[serve]'")


def test_a_renderer_that_dies_is_a_finding(monkeypatch, versions):
    versions(mujoco="3", metaworld="3", **{"imageio-ffmpeg": "1"})
    monkeypatch.setattr(extras, "DRAW_ONE_FRAME", "import os; os.abort()")
    assert extras.robot().state == BROKEN
    monkeypatch.setattr(extras, "DRAW_ONE_FRAME", "")
    assert extras.robot() == Finding(OK, "mujoco 3, metaworld 3, imageio-ffmpeg 1; renders with egl and osmesa")


def test_where_there_are_no_wheels_the_python_is_named(monkeypatch, versions):
    versions()
    assert extras.robot().remedy == "pip install 'lookact[robot]'"
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    assert extras.robot().remedy.startswith("needs Python 3.11 to 3.13")


@pytest.mark.parametrize(
    ("code", "state", "told"),
    [("print('some card')", OK, "draws with some card"), ("import os; os.abort()", BROKEN, "Mesa 25 or newer")],
)
def test_maniskill_is_well_where_sapien_finds_a_device(monkeypatch, versions, code, state, told):
    versions(**{"mani-skill": "3.0", "sapien": "3.0"})
    monkeypatch.setattr(extras, "NAME_DRAWING_DEVICE", code)
    finding = extras.maniskill()
    assert finding.state == state
    assert told in finding.detail


def test_maniskill_that_is_not_there_wants_the_robot_too(versions):
    versions()
    assert "lookact[maniskill,robot]" in extras.maniskill().remedy


@pytest.fixture
def versions(monkeypatch):
    """Pretends that these distributions, and no others, are installed."""

    def pretend(**installed: str) -> None:
        def version(name: str) -> str:
            if name not in installed:
                raise importlib.metadata.PackageNotFoundError(name)
            return installed[name]

        monkeypatch.setattr(extras.importlib.metadata, "version", version)

    return pretend
