"""The page's pure modules, tested by the JavaScript files beside this one."""

import shutil
import subprocess
from pathlib import Path

import pytest

from lookact.viewer.page import STATIC, bundle

NODE = shutil.which("node")
TESTS = sorted(Path(__file__).parent.glob("*.test.mjs"))

pytestmark = pytest.mark.skipif(NODE is None, reason="no node here: apt-get install nodejs runs this")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The page's modules and their tests in one folder that node takes for modules."""
    folder = tmp_path_factory.mktemp("scripts")
    for path in (*STATIC.glob("*.js"), *TESTS):
        shutil.copy(path, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def test_every_pure_module_has_a_test():
    pure = {path.stem for path in STATIC.glob("*.js") if "Pure" in path.read_text().partition("\n")[0]}
    assert pure == {path.name.removesuffix(".test.mjs") for path in TESTS}


def test_the_modules_do_what_their_tests_say(scripts):
    done = subprocess.run([NODE, "--test", str(scripts)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert f"# tests {sum(path.read_text().count('test(') for path in TESTS)}" in done.stdout


def test_the_bundle_is_one_valid_module(scripts):
    (scripts / "bundle.mjs").write_text(bundle())
    done = subprocess.run([NODE, "--check", str(scripts / "bundle.mjs")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
