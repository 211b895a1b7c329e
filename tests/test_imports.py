"""What must stay light stays light."""

import importlib.util
import json
import subprocess
import sys

import pytest

LIGHT = [
    "lookact.types",
    "lookact.errors",
    "lookact.extras",
    "lookact.seeding",
    "lookact.protocols",
    "lookact.cli",
    "lookact.train.config",
]
if importlib.util.find_spec("lookact.judges.client"):
    LIGHT.append("lookact.judges.client")


def modules_after(code: str) -> set[str]:
    """The top-level modules a fresh interpreter has loaded after running the code."""
    report = "import sys, json; sys.stderr.write(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr))


@pytest.mark.parametrize("module", LIGHT)
def test_loads_no_torch(module):
    assert not {"torch", "transformers"} & modules_after(f"import {module}")


def test_help_loads_nothing_heavy():
    heavy = {"torch", "numpy", "transformers", "matplotlib", "gymnasium", "rich", "tyro"}
    assert not heavy & modules_after("from lookact.cli import main; assert main(['--help']) == 0")


@pytest.mark.slow
def test_the_probe_sees_torch():
    assert "torch" in modules_after("import lookact.batch")
