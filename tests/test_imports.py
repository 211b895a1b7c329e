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
    "lookact.config",
]
RECIPE_SETTINGS = [
    f"lookact.recipes.{recipe}.{part}"
    for recipe in ("rloo", "ppo", "vla_ppo", "pref_sac", "world_duel")
    for part in ("config", "preflight")
]
HEAVY = {"torch", "transformers", "peft", "mujoco", "trimesh", "embreex", "scipy", "metaworld", "vllm", "ray"}
if importlib.util.find_spec("lookact.judges.client"):
    LIGHT.append("lookact.judges.client")


def modules_after(code: str) -> set[str]:
    """The top-level modules a fresh interpreter has loaded after running the code."""
    report = "import sys, json; sys.stderr.write(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True)
    # a library may have warned before
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("module", LIGHT)
def test_loads_no_torch(module):
    assert not {"torch", "transformers"} & modules_after(f"import {module}")


@pytest.mark.parametrize("module", RECIPE_SETTINGS)
def test_settings_of_a_recipe_load_nothing_heavy(module):
    assert not HEAVY & modules_after(f"import {module}")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["train", "nav-rloo", "--learn.lrr", "1"], 2),
        (["train", "nav-rloo", "--help"], 0),
        (["config", "world-duel"], 0),
        (["eval", "vla-ppo", "--dummy", "--env.tusk", "reach"], 2),
        (["train", "vqa-ppo", "--engine", "vllm", "--processes", "2"], 2),
        (["train", "nav-rloo", "--model.source", "./nothere"], 2),
        (["collect", "vqa-ppo", "--episodes", "1", "--out", "episodes", "--model.hidden", "1"], 2),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else str(value),
)
def test_a_recipes_settings_are_answered_for_without_torch(words, code):
    quiet, loud = "import io, sys; sys.stdout = sys.stderr = io.StringIO()", "sys.stderr = sys.__stderr__"
    run = f"from lookact.cli import main; assert main({words}) == {code}"
    assert not HEAVY & modules_after(f"{quiet}\n{run}\n{loud}")


def test_help_loads_nothing_heavy():
    heavy = {"torch", "numpy", "transformers", "matplotlib", "gymnasium", "rich", "tyro"}
    assert not heavy & modules_after("from lookact.cli import main; assert main(['--help']) == 0")


@pytest.mark.slow
def test_pref_sac_loads_no_simulator():
    assert not {"mujoco", "metaworld"} & modules_after("import lookact.recipes.pref_sac.train")


@pytest.mark.slow
def test_the_probe_sees_torch():
    assert "torch" in modules_after("import lookact.batch")
