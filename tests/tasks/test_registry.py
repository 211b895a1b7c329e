import dataclasses
import sys

import pytest

from lookact.cli.recipes import load_settings, settings_for
from lookact.config import override, settings
from lookact.errors import ConfigError
from lookact.tasks.registry import TASKS, find_task
from lookact.tasks.settings import FrozenLakeConfig, NavigationConfig

OWN = """
class Own:
    image_size = 64
    def make_env(self): ...
    def specs(self, seed, split, *, groups, group_size=1, step=0): ...
    def report(self, episodes): ...

TASK = Own()
NOTHING = 3
"""


@pytest.mark.parametrize("name", TASKS)
def test_every_named_task_has_settings_with_defaults(name):
    cls = find_task(name)
    assert dataclasses.is_dataclass(cls)
    assert cls().image_size % 32 == 0


def test_a_task_is_found_in_a_file_and_in_a_module(tmp_path, monkeypatch):
    (tmp_path / "my_task_module.py").write_text(OWN)
    by_file = find_task(f"{tmp_path / 'my_task_module.py'}:TASK")()
    assert by_file.image_size == 64
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("my_task_module")
    assert find_task("my_task_module:TASK")().make_task(0).image_size == 64


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("frozn-lake", "unknown task frozn-lake: did you mean frozen-lake?"),
        ("no.such.module:TASK", "there is no module no"),
        ("nothere.py:TASK", "nothere.py does not exist"),
        ("mine.py", "task mine.py is a file: say which of its names is the task, as in mine.py:TASK"),
        ("my_bad_module:MISSING", "has no MISSING"),
        ("my_bad_module:NOTHING", "is no task: it has no make_env"),
        ("my_bad_module:Own", "is a class without make_task or factory"),
        ("my_broken_module:TASK", "could not be imported: ZeroDivisionError"),
    ],
)
def test_a_bad_task_is_one_line(name, line, tmp_path, monkeypatch):
    (tmp_path / "my_bad_module.py").write_text(OWN)
    (tmp_path / "my_broken_module.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as error:
        find_task(name)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("recipe", ["nav-rloo", "vqa-ppo"])
def test_a_recipes_settings_follow_the_task(recipe):
    own = load_settings(recipe)
    assert settings_for(own, None) is own
    other = settings_for(own, "frozen-lake")
    names = {leaf.name for leaf in settings(other.Config)}
    assert "env.slippery" in names
    assert "env.success_distance" not in names
    small = other.PRESETS["small"]
    assert (small.task, small.env, small.sft.demonstrations) == ("frozen-lake", FrozenLakeConfig(), 1000)
    # what a task says of a recipe that lacks the setting is passed over; what is given is typed as ever
    assert override(small, ["--env.size", "6"]).env.image_size == 96
    assert isinstance(own.PRESETS["small"].env, NavigationConfig) == (recipe == "nav-rloo")
    # and what it says of one recipe alone is taken by that one alone
    assert (small.learn.lr, small.learn.epochs) == {"nav-rloo": (4e-4, 4), "vqa-ppo": (3e-4, 2)}[recipe]
