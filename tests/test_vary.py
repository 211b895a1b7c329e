"""The tests themselves can be run in another order and on what passes for another machine."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

ROOT = Path(__file__).parents[1]
TOOL = ROOT / "tools/vary-tests"


def vary(*words, **variables):
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, **variables}
    return subprocess.run([TOOL, *words], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.fixture
def order(pytestconfig):
    """The files of two tests each, as they are run with a seed or without."""
    conftest = pytestconfig.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))

    def run(seed, names):
        items = [SimpleNamespace(path=Path(f"tests/{name}"), number=number) for name in names for number in (1, 2)]
        conftest.pytest_collection_modifyitems(SimpleNamespace(getoption=lambda _: seed), items)
        assert [item.number for item in items] == [1, 2] * len(names)
        return [item.path.as_posix().removeprefix("tests/") for item in items[::2]]

    return run


def test_a_seed_shuffles_the_files_and_leaves_each_whole(order):
    names = [f"test_{letter}.py" for letter in "abcdefgh"]
    assert order(None, names) == names
    assert order(1, names) == order(1, names) != order(2, names)
    assert sorted(order(1, names)) == names != order(1, names)


def test_the_longest_files_come_first_and_exist(order):
    longest = "judges/server/test_load.py"
    assert (ROOT / "tests" / longest).exists()
    assert order(None, ["test_a.py", longest, "test_b.py"]) == [longest, "test_a.py", "test_b.py"]


def test_ways_are_told_and_an_unknown_one_is_refused():
    told = vary()
    assert told.returncode == 2
    assert "old-cpu" in told.stdout
    refused = vary("busy,hasty", BUSY_SECONDS="60")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("vary-tests: no way is called 'hasty'")


def test_the_cores_are_idle_again_when_the_tests_are_over():
    ways = "old-cpu,busy,shuffled,surroundings,1-worker"
    done = vary(ways, "--version", BUSY_SECONDS="60")
    assert (done.returncode, done.stdout.split()[0]) == (0, "pytest")
    assert not [each.pid for each in psutil.process_iter(["cmdline"]) if ways in (each.info["cmdline"] or ())]
