import os
import subprocess
import sys

import numpy as np
import pytest

from lookact.envs.tabletop import rendering
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.randomise import Randomisation
from lookact.errors import EnvError

CLEARLY_VISIBLE = Randomisation(appearance=False)


def pixels_like(image: np.ndarray, channel: int) -> int:
    """How many pixels are clearly red (0), green (1) or blue (2)."""
    others = np.delete(image.astype(int), channel, axis=-1).max(-1)
    return int((image[..., channel].astype(int) > 1.8 * others).sum())


def test_red_cube_and_blue_stand_are_in_the_head_cameras_view_wherever_they_lie():
    env = Tabletop(randomise=CLEARLY_VISIBLE)
    for seed in range(15):
        shown, _ = env.reset(seed=seed)
        assert pixels_like(shown["head"], 0) > 15
        assert pixels_like(shown["head"], 2) > 60
    env.close()


def test_the_wrist_camera_sees_what_the_gripper_is_about_to_take():
    env = Tabletop(randomise=CLEARLY_VISIBLE)
    shown, _ = env.reset(seed=0)
    far = pixels_like(shown["wrist"], 0)
    goal = env.situation().object + np.array([0, 0, 0.06])
    for _ in range(10):
        shown, *_ = env.step(env.controller.action_towards(goal, 1.0))
    near = pixels_like(shown["wrist"], 0)
    env.close()
    assert near > max(far, 150)


def test_pictures_are_upright():
    env = Tabletop(randomise=CLEARLY_VISIBLE, cameras=("head",))
    shown, _ = env.reset(seed=0)
    env.close()
    # the grey wall is above, the brown table below
    top, bottom = shown["head"][0].astype(int), shown["head"][-1].astype(int)
    assert np.abs(np.diff(top.mean(0))).max() < 15
    assert bottom.mean(0)[0] > bottom.mean(0)[2] + 40


def test_the_vision_shift_changes_the_picture_but_not_the_episode():
    plain, shifted = Tabletop(), Tabletop(shift="vision")
    first, _ = plain.reset(seed=4)
    second, _ = shifted.reset(seed=4)
    plain.close()
    shifted.close()
    assert np.array_equal(first["state"], second["state"])
    assert np.abs(first["head"].astype(int) - second["head"]).mean() > 10


def test_a_world_keeps_no_map_of_shadows_that_nobody_draws():
    world = Tabletop(image_size=16)
    world.reset(seed=0)
    assert world._renderer._drawer.shadowTex == 0
    world.close()


def test_without_any_backend_one_line_names_the_packages(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(rendering, "WORKS", {"egl": lambda: False, "osmesa": lambda: False})
    with pytest.raises(
        EnvError, match=r"neither EGL nor OSMesa works here: apt-get install libegl1 .* libosmesa6"
    ) as told:
        rendering.choose_backend()
    assert "\n" not in str(told.value)


def test_osmesa_is_taken_where_egl_is_not_there(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(rendering, "WORKS", {"egl": lambda: False, "osmesa": lambda: True})
    assert rendering.choose_backend() == "osmesa"


def test_the_users_choice_wins(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert rendering.choose_backend() == "osmesa"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["egl", "osmesa"])
def test_each_backend_draws_in_a_process_of_its_own_and_leaves_quietly(backend):
    if backend == "egl" and not rendering.egl_works():
        pytest.skip("EGL is absent: apt-get install libegl1 runs this")
    if backend == "osmesa" and not rendering.osmesa_works():
        pytest.skip("OSMesa is absent: apt-get install libosmesa6 runs this")
    # the other backend's import has left a mark in this process
    surroundings = {name: value for name, value in os.environ.items() if name != "PYOPENGL_PLATFORM"}
    code = "from lookact.envs.tabletop.env import Tabletop\nassert Tabletop().reset(seed=0)[0]['head'].std() > 10"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**surroundings, "MUJOCO_GL": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
