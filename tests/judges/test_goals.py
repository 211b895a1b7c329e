import pytest

from lookact.errors import ConfigError
from lookact.judges.goals import CLASSIC, METAWORLD, TABLETOP, goal_of


@pytest.mark.parametrize("task", ["metaworld_sweep-into-v2", "sweep-into-v3", "sweep-into-v2", "sweep-into"])
def test_old_and_new_names_of_a_metaworld_task_have_one_goal(task):
    assert goal_of(task) == METAWORLD["sweep-into"]


def test_a_metaworld_task_without_words_of_its_own_is_spelt_out():
    assert goal_of("peg-unplug-side-v3").endswith("peg unplug side")
    assert goal_of("metaworld_stick-pull-v2").endswith("stick pull")


@pytest.mark.parametrize(
    ("task", "goal"),
    [
        ("CartPole-v1", CLASSIC["CartPole"]),
        ("Pendulum-v1", CLASSIC["Pendulum"]),
        ("MountainCarContinuous-v0", CLASSIC["MountainCar"]),
        ("lookact/Tabletop-v0", TABLETOP["Tabletop"]),
        ("soccer-v3", METAWORLD["soccer"]),
    ],
)
def test_tasks_are_found_by_the_names_of_their_environments(task, goal):
    assert goal_of(task) == goal


def test_goals_complete_the_sentence():
    for goals in (CLASSIC, METAWORLD, TABLETOP):
        assert all(goal.startswith("to ") and not goal.endswith(".") for goal in goals.values())


def test_an_unknown_task_is_refused():
    with pytest.raises(ConfigError, match=r"Chess-v0.*drawer-open"):
        goal_of("Chess-v0")
