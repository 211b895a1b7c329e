"""The table of optional packages agrees with what pip is told."""

import re
import tomllib
from pathlib import Path

import pytest

from lookact import extras
from lookact.extras import BASE, EXTRAS, extra_of, is_installed, missing, pip_install, pip_install_for

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_FOR_USERS = {"dev"}


def names(requirements: list[str]) -> list[str]:
    return [re.split(r"[^\w-]", requirement)[0] for requirement in requirements]


def test_every_extra_of_the_project_is_in_the_table():
    assert EXTRAS.keys() == PROJECT["optional-dependencies"].keys() - NOT_FOR_USERS


@pytest.mark.parametrize("name", EXTRAS)
def test_an_extra_brings_exactly_the_packages_of_the_table(name):
    assert sorted(names(PROJECT["optional-dependencies"][name])) == sorted(EXTRAS[name].packages.values())
    assert EXTRAS[name].enables


def test_a_package_is_of_the_base_install_or_of_extras():
    optional = {distribution for extra in EXTRAS.values() for distribution in extra.packages.values()}
    assert not optional & set(names(PROJECT["dependencies"]))


def test_the_docs_tell_the_same():
    table = (ROOT / "docs/install.md").read_text(encoding="utf-8").split("| extra |")[1].split("\n\n")[0]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    told = {name: (enabled, packages) for name, enabled, packages in rows}
    assert told.pop("none")[0] == " · ".join(BASE)
    assert told == {
        name: (" · ".join(extra.enables), ", ".join(extra.packages.values())) for name, extra in EXTRAS.items()
    }


def test_a_missing_module_leads_to_its_extra():
    assert extra_of("mujoco") == extra_of("mujoco._render") == "robot"
    assert extra_of("numpy") is None
    assert pip_install_for("fastapi.responses") == pip_install("serve") == "pip install 'lookact[serve]'"
    assert pip_install_for("strange.thing") == "pip install strange"


def test_what_is_missing_is_told_as_it_is_installed(monkeypatch):
    monkeypatch.setattr(extras, "is_installed", lambda module: module == "sapien")
    assert missing("maniskill") == ["mani-skill"]


def test_installed_is_asked_without_importing():
    assert is_installed("json")
    assert not is_installed("no_such_module")
