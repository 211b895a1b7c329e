import mujoco
import numpy as np
import pytest

from lookact.envs.tabletop.drawers import TRAVEL, handle_place, lateral
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.scene import COLOURS


def test_drawers_lie_beside_each_other_about_the_middle():
    assert [lateral(index, 2) for index in range(2)] == pytest.approx([-0.06, 0.06])
    assert [lateral(index, 3) for index in range(3)] == pytest.approx([-0.12, 0.0, 0.12])


def test_a_handles_place_by_hand():
    # a quarter turn: the way that drawers open is y, and across is -x
    place = handle_place(np.array([0.4, 0.1, np.pi / 2]), 0.06, 0.05)
    assert place == pytest.approx([0.4 - 0.06, 0.1 + 0.013 + 0.05, 0.062])


@pytest.mark.parametrize("task", ["open_drawer", "close_drawer"])
def test_the_handles_are_where_the_start_says_and_have_the_named_colour(task):
    env = Tabletop(cameras=(), task=task, distractors=2)
    sides = set()
    for seed in range(12):
        env.reset(seed=seed)
        for index, (colour, (x, y, _)) in enumerate(zip(env.look.targets, env.start.objects)):
            handle = env.data.geom(f"target{index}_handle")
            assert handle.xpos[:2] == pytest.approx([x, y], abs=1e-6)
            assert env.model.geom(f"target{index}_handle").rgba[:3] == pytest.approx(COLOURS[colour], abs=1e-6)
        assert f"{env.look.targets[0]} drawer" in env.instruction
        sides.add(round(float(env.start.slots[0]), 2))
        # far from done, and the goal is the handle's other end
        way = np.linalg.norm(env.start.targets[0] - env.start.objects[0, :2])
        assert way == pytest.approx(abs(TRAVEL * (task == "open_drawer") - env.start.openings[0]))
        assert way > 0.065
    # the place says nothing about which drawer is asked for
    assert sides == {-0.12, 0.0, 0.12}


def test_a_drawer_stays_where_it_is_and_slides_when_it_is_pulled():
    env = Tabletop(cameras=(), task="open_drawer")
    env.reset(seed=0)
    address = env.model.joint("target0").qposadr[0]
    before = float(env.data.qpos[address])
    mujoco.mj_step(env.model, env.data, 100)
    assert float(env.data.qpos[address]) == pytest.approx(before, abs=1e-4)
    dof = env.model.joint("target0").dofadr[0]
    env.data.qfrc_applied[dof] = 3.0
    mujoco.mj_step(env.model, env.data, 200)
    assert float(env.data.qpos[address]) == pytest.approx(TRAVEL, abs=2e-3)


def test_the_wrong_drawer_is_no_success():
    env = Tabletop(cameras=(), task="open_drawer", distractors=1)
    env.reset(seed=1)
    env.data.qpos[env.model.joint("target1").qposadr[0]] = TRAVEL
    mujoco.mj_forward(env.model, env.data)
    _, _, terminated, _, info = env.step(np.array([0, 0, 0, 1], np.float32))
    assert not terminated
    assert info["progress"] < 0.5
    env.data.qpos[env.model.joint("target0").qposadr[0]] = TRAVEL
    _, _, terminated, _, info = env.step(np.array([0, 0, 0, 1], np.float32))
    assert terminated
    assert info["success"]
