import logging

import mujoco
import numpy as np
import pytest

from lookact.envs.control.metaworld import MetaWorld, render_model, task_name
from lookact.errors import ConfigError, EnvError

FORWARD = np.array([0.0, 1.0, -0.3, 1.0], np.float32)


@pytest.fixture(scope="module")
def drawer():
    env = MetaWorld("drawer-close-v3", horizon=6, action_repeat=3, image_size=48)
    yield env
    env.close()


def play(env, seed, actions):
    states = [env.reset(seed=seed)[0]]
    results = [env.step(action) for action in actions]
    return np.stack([*states, *(result[0] for result in results)]), results


def test_the_seed_alone_decides_an_episode(drawer):
    first, _ = play(drawer, 3, [FORWARD] * 6)
    play(drawer, 4, [-FORWARD] * 2)
    again, _ = play(drawer, 3, [FORWARD] * 6)
    other, _ = play(drawer, 5, [FORWARD] * 6)
    assert first.dtype == np.float32
    assert np.array_equal(first, again)
    assert not np.array_equal(first[0], other[0])


def test_an_episode_has_its_horizon_and_is_truncated_there(drawer):
    _, results = play(drawer, 0, [FORWARD] * 6)
    assert [result[2] for result in results] == [False] * 6
    assert [result[3] for result in results] == [False] * 5 + [True]
    with pytest.raises(EnvError, match="call reset"):
        drawer.step(FORWARD)


def test_a_decision_is_several_steps_with_their_mean_reward(drawer):
    states, results = play(drawer, 1, [FORWARD] * 2)
    single = MetaWorld("drawer-close-v3", horizon=6, action_repeat=1)
    fine, small = play(single, 1, [FORWARD] * 6)
    assert np.array_equal(states, fine[::3])
    assert results[1][1] == pytest.approx(np.mean([result[1] for result in small[3:]]))


def test_the_goal_is_shown_in_every_state(drawer):
    states, _ = play(drawer, 2, [FORWARD] * 3)
    assert states[0, -3:].any()
    assert np.allclose(states[:, -3:], states[0, -3:])


def test_success_is_told(drawer):
    from metaworld.policies import ENV_POLICY_MAP

    env, expert = MetaWorld("drawer-close-v3", horizon=100, action_repeat=1), ENV_POLICY_MAP["drawer-close-v3"]()
    state, info = env.reset(seed=0)
    assert info["success"] is False
    successes = []
    for _ in range(100):
        state, *_, info = env.step(expert.get_action(state.astype(np.float64)))
        successes.append(info["success"])
    assert not successes[0]
    assert successes[-1]


def test_pictures_are_upright_and_follow_the_gripper(drawer):
    play(drawer, 0, [])
    before = drawer.render()
    assert before.shape == (48, 48, 3)
    # the wooden table lies below the black nothing above it
    assert before[40:].mean() > before[:8].mean() + 30
    drawer.step(FORWARD)
    assert not np.array_equal(before, drawer.render())
    play(drawer, 0, [])
    assert np.array_equal(before, drawer.render())


def test_drawing_does_not_change_the_physics(drawer):
    plain, _ = play(drawer, 7, [FORWARD] * 4)
    drawer.reset(seed=7)
    drawn = []
    for _ in range(4):
        drawer.render()
        drawn.append(drawer.step(FORWARD)[0])
    assert np.array_equal(plain[1:], np.stack(drawn))


def test_crop_keeps_a_part_of_the_picture(drawer):
    cropped = MetaWorld("drawer-close-v3", horizon=6, image_size=48, crop=(0.25, 0.5, 0.75, 1.0))
    play(drawer, 0, [])
    play(cropped, 0, [])
    assert np.array_equal(cropped.render(), drawer.render()[12:36, 24:])
    cropped.close()


def test_old_names_are_mapped_with_a_note(caplog):
    with caplog.at_level(logging.WARNING, "lookact"):
        assert task_name("metaworld_sweep-into-v2") == "sweep-into-v3"
    assert "run as sweep-into-v3" in caplog.text
    caplog.clear()
    assert task_name("soccer-v3") == task_name("soccer") == "soccer-v3"
    assert not caplog.text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task": "drawer-opn-v3"}, "did you mean drawer-open-v3"),
        ({"task": "Walker"}, "no task 'Walker'"),
        ({"horizon": 300, "action_repeat": 2}, "ends after 500 steps"),
        ({"camera": "roof"}, "choose one of"),
        ({"crop": (0.5, 0.0, 0.5, 1.0)}, "top, left, bottom, right"),
    ],
)
def test_what_cannot_be_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        MetaWorld(**{"task": "drawer-open-v3", **changes})


def ball_model():
    vertices = np.random.default_rng(0).normal(size=(600, 3))
    vertices *= 0.1 / np.linalg.norm(vertices, axis=1, keepdims=True)
    spec = mujoco.MjSpec()
    spec.add_mesh(name="ball", uservert=vertices.ravel())
    spec.worldbody.add_light(pos=[0, 0, 3])
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[1, 1, 1])
    spec.worldbody.add_body(pos=[0, 0, 0.5]).add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="ball")
    return spec.compile()


def test_the_copy_is_lighter_and_the_original_untouched():
    model = ball_model()
    faces, types = model.mesh_facenum.copy(), model.geom_type.copy()
    fast = render_model(model)
    assert 20 < fast.mesh_facenum[0] < faces[0]
    assert not fast.light_castshadow.any()
    assert mujoco.mjtGeom.mjGEOM_PLANE not in fast.geom_type.tolist()
    assert np.array_equal(model.mesh_facenum, faces)
    assert np.array_equal(model.geom_type, types)


def test_the_triangles_that_stay_keep_the_shape():
    fast = render_model(ball_model())
    faces = fast.mesh_face[: fast.mesh_facenum[0]]
    corners = fast.mesh_vert[faces]
    assert ((faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 0] != faces[:, 2])).all()
    sides = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    area = 0.5 * np.linalg.norm(sides, axis=1).sum()
    # a sphere of radius 0.1
    assert abs(area / (4 * np.pi * 0.01) - 1) < 0.15
    assert len(np.unique(np.sort(faces, axis=1), axis=0)) == len(faces)
