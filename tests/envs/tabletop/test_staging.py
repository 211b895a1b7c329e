import mujoco
import numpy as np
import pytest

from lookact.envs.tabletop.randomise import Randomisation, draw_look, draw_start
from lookact.envs.tabletop.scene import COLOURS, HEIGHTS, SHAPES, Layout, build_model
from lookact.envs.tabletop.staging import dress, place

ALL = Randomisation(True, True, True, True, True)


@pytest.mark.parametrize("targets", ["stand", "mark"])
def test_what_was_drawn_is_what_stands_on_the_table(targets):
    layout = Layout(targets, distractors=1)
    model = build_model(layout)
    data = mujoco.MjData(model)
    for seed in range(10):
        look = draw_look(seed, ALL, "none", things=2, clutter=layout.clutter)
        start = draw_start(seed, "pick_place", "none", things=2)
        mujoco.mj_resetData(model, data)
        dress(model, look, layout)
        place(model, data, look, start, layout)
        mujoco.mj_forward(model, data)
        for index, (colour, shape) in enumerate(look.objects):
            assert data.body(f"object{index}").xpos == pytest.approx([*start.objects[index, :2], HEIGHTS[shape]])
            visible = [name for name in SHAPES if model.geom(f"object{index}_{name}").rgba[3] == 1]
            touchable = [name for name in SHAPES if model.geom(f"object{index}_{name}_core").contype[0]]
            assert visible == touchable == [shape]
            assert model.geom(f"object{index}_{shape}").rgba[:3] == pytest.approx(COLOURS[colour], abs=1e-6)
        for index, colour in enumerate(look.targets):
            assert data.geom(f"target{index}").xpos[:2] == pytest.approx(start.targets[index])
            assert model.geom(f"target{index}").rgba[:3] == pytest.approx(COLOURS[colour], abs=1e-6)
        clutter = [index for index in range(layout.clutter) if any(model.geom_rgba[geoms(model, index), 3])]
        assert len(clutter) == len(look.clutter)
        assert np.allclose(model.camera("head").pos, look.eye)


def geoms(model, index: int) -> list[int]:
    return [model.geom(f"clutter{index}_{shape}").id for shape in SHAPES]


def test_objects_rest_where_they_are_put():
    layout = Layout("stand")
    model = build_model(layout)
    data = mujoco.MjData(model)
    for shape in SHAPES:
        look = draw_look(0, Randomisation(appearance=False), "none", things=1, clutter=4)
        object.__setattr__(look, "objects", (("red", shape),))
        mujoco.mj_resetData(model, data)
        dress(model, look, layout)
        place(model, data, look, draw_start(0, "pick_place", "none", things=1), layout)
        mujoco.mj_forward(model, data)
        before = data.body("object0").xpos.copy()
        mujoco.mj_step(model, data, 100)
        assert np.abs(data.body("object0").xpos - before).max() < 0.001
