import pytest

from lookact.envs.control.task_names import packages_of


@pytest.mark.parametrize(
    ("task", "packages"),
    [
        ("Pendulum-v1", ()),
        ("my_module:mine/Dot-v0", ()),
        ("tabletop/reach", ("mujoco",)),
        ("lookact/Tabletop-v0", ("mujoco",)),
        ("drawer-open-v3", ("mujoco", "metaworld")),
        ("metaworld_sweep-into", ("mujoco", "metaworld")),
    ],
)
def test_a_task_needs_its_own_simulator_and_no_other(task, packages):
    assert packages_of(task) == packages
