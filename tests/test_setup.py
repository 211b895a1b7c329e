"""Setting up: what make would run, what its tools say where something is missing, and what is packed."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from lookact.cli.doctor import TESTED

ROOT = Path(__file__).parents[1]
TOOLS = sorted(
    path
    for path in (ROOT / "tools").iterdir()
    if path.is_file() and path.read_text(encoding="utf-8").startswith("#!/usr/bin/env bash")
)
BUILD = "import sys; from setuptools import build_meta as b; out = sys.argv[1]; b.build_sdist(out); b.build_wheel(out)"


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    # the make that runs these tests is no concern of one that they start
    own = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(
        list(map(str, command)), cwd=ROOT, env={**own, **variables}, capture_output=True, text=True, check=False
    )


def planned(target: str, folder: Path, *words: str) -> str:
    """What make would run for a target in an environment that is not there yet."""
    done = run("make", "--dry-run", target, f"VENV={folder / 'venv'}", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_demo_asks_for_less_than_the_tests(tmp_path):
    demo, tests = planned("demo", tmp_path), planned("test", tmp_path)
    assert ".[serve]" in demo
    assert "robot" not in demo
    assert "system-libraries" not in demo
    # the second step comes on top of the first
    assert tests.index(".[serve]") < tests.index("robot") < tests.index("-m pytest")


def test_torch_comes_from_the_index_that_is_named(tmp_path):
    pin = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    assert f"--no-deps --index-url somewhere {pin}" in planned("setup", tmp_path, "TORCH_INDEX=somewhere")
    assert "--index-url" not in planned("setup", tmp_path)


def test_what_is_set_up_is_not_set_up_again(tmp_path):
    (tmp_path / "venv").mkdir()
    for stamp in (".ready-demo", ".ready"):
        (tmp_path / "venv" / stamp).touch()
    assert "pip-install" not in planned("test", tmp_path)


@pytest.mark.parametrize(
    ("answer", "told"), [("echo 3.9", "is Python 3.9"), ("echo 2.7", "is Python 2.7"), ("exit 1", "does not run")]
)
def test_a_python_too_old_is_one_line_with_the_remedy(tmp_path, answer, told):
    python = script(tmp_path / "python", answer)
    done = run("tools/make-venv", python, tmp_path / "venv")
    assert done.returncode != 0
    assert done.stdout == ""
    assert re.fullmatch(rf".*{told}.*3\.11 or newer.*PYTHON=python3\.1[1-3]\n", done.stderr)
    assert not (tmp_path / "venv").exists()


def test_make_passes_it_on(tmp_path):
    python = script(tmp_path / "python", "echo 3.9")
    done = run("make", "setup", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}")
    assert done.returncode != 0
    told, makes_own = done.stderr.splitlines()
    assert "LookAct needs 3.11 or newer" in told
    assert makes_own.startswith("make: ***")


def test_an_environment_that_cannot_be_made_leaves_nothing(tmp_path):
    python = script(tmp_path / "python", f'[ "$1" = -c ] && echo 3.12 || {{ mkdir {tmp_path}/venv; exit 1; }}')
    done = run("tools/make-venv", python, tmp_path / "venv")
    assert done.returncode != 0
    assert "python3.12-venv" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_an_environment_that_is_there_is_kept(tmp_path):
    (tmp_path / "venv/bin").mkdir(parents=True)
    script(tmp_path / "venv/bin/python", "echo 3.12")
    assert run("tools/make-venv", tmp_path / "no-such-python", tmp_path / "venv").returncode == 0
    script(tmp_path / "venv/bin/python", "echo 3.9")
    done = run("tools/make-venv", sys.executable, tmp_path / "venv")
    assert done.returncode != 0
    assert "make clean" in done.stderr
    assert (tmp_path / "venv/bin/python").exists()


def test_a_newer_python_is_a_warning(tmp_path):
    python = script(tmp_path / "python", f'[ "$1" != -c ] || echo 3.14; mkdir -p {tmp_path}/venv')
    done = run("tools/make-venv", python, tmp_path / "venv")
    assert done.returncode == 0
    assert "tested with (3.11 to 3.13)" in done.stderr


def test_pip_is_heard_only_where_it_matters(tmp_path):
    python = script(
        tmp_path / "python",
        """echo 'WARNING: a location is ignored' >&2; echo 'ERROR: no such package' >&2
        echo '  Downloading small-1.whl (1.0 MB)'; echo '  Downloading a/large-1.whl (55.0 MB)'; exit 3""",
    )
    done = run("tools/pip-install", python, "something")
    assert done.returncode == 3
    assert done.stdout == "  downloads large-1.whl (55.0 MB)\n"
    assert done.stderr == "ERROR: no such package\n"


@pytest.mark.parametrize("root", [False, True])
def test_missing_system_libraries_without_apt_are_one_line(tmp_path, root):
    script(tmp_path / "id", f"echo {0 if root else 1000}")
    blind = script(tmp_path / "python", "exit 1")
    for name in ("bash", "uname"):
        (tmp_path / name).symlink_to(shutil.which(name))
    done = run("tools/system-libraries", blind, PATH=str(tmp_path))
    assert done.returncode == 0
    assert len((done.stdout + done.stderr).splitlines()) == 1
    assert "libegl1" in done.stderr


def test_system_libraries_that_are_there_are_found_without_apt_or_ldconfig(tmp_path):
    seeing = script(tmp_path / "python", "exit 0")
    for name in ("bash", "uname"):
        (tmp_path / name).symlink_to(shutil.which(name))
    done = run("tools/system-libraries", seeing, PATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_apt_that_fails_stops_nothing(tmp_path):
    script(tmp_path / "id", "echo 0")
    script(tmp_path / "apt-get", "exit 100")
    blind = script(tmp_path / "python", "exit 1")
    for name in ("bash", "uname"):
        (tmp_path / name).symlink_to(shutil.which(name))
    done = run("tools/system-libraries", blind, PATH=str(tmp_path))
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("tool", TOOLS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(tool):
    shellcheck = Path(sys.executable).with_name("shellcheck")
    if not shellcheck.exists():
        pytest.skip("needs lookact[dev]")
    assert run(shellcheck, tool).stdout == ""


def test_the_tested_pythons_are_the_declared_ones():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [entry.rpartition(" ")[2] for entry in project["classifiers"] if re.search(r":: 3\.\d+$", entry)]
    assert declared == [f"3.{minor}" for minor in range(TESTED[0][1], TESTED[1][1] + 1)]
    assert project["requires-python"] == f">=3.{TESTED[0][1]}"


@pytest.mark.slow
def test_wheel_and_sdist_hold_what_they_should(tmp_path):
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed.returncode:
        pytest.skip("not a checkout")
    # a copy: building writes beside the sources
    files = [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]
    for name in files:
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / "tree" / name)
    subprocess.run([sys.executable, "-c", BUILD, str(tmp_path)], cwd=tmp_path / "tree", capture_output=True, check=True)
    wheel = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        sdist = {name.partition("/")[2] for name in archive.getnames()}
    packed = {name.removeprefix("src/") for name in files if name.startswith("src/lookact/")}
    assert packed <= wheel
    assert {"lookact/py.typed", "lookact/viewer/static/index.html"} <= wheel
    assert not [name for name in wheel if not name.startswith("lookact")]
    assert set(files) - sdist <= {".gitignore", ".ci/run"}
