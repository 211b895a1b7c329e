import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv

import lookact.envs.rooms.navigation as navigation
from lookact.envs.rooms.arkit import save_scene
from lookact.envs.rooms.experts.demonstrate import random_move
from lookact.envs.rooms.generate import generate_room
from lookact.envs.rooms.goals import NavigationTask, goal_field
from lookact.envs.rooms.motion import Pose
from lookact.envs.rooms.navigation import Navigation, observe
from lookact.errors import ConfigError, EnvError
from scene_notes import living_room, note, room, write_notes

AHEAD = '{"rotation_angle_degrees": 0, "forward_meters": 1.5}'


@pytest.fixture
def corridor(make_place, monkeypatch):
    """A chair 3 m of walking ahead of the start at (1.05, 2.05)."""
    place = make_place(6.0, 4.0, {"chair": (5.0, 1.5, 1.0, 1.0, 0.9)})
    task = NavigationTask(
        place, 0, "chair", "Go to the chair.", "q0", goal_field(place, 0, 1.0), Pose(1.05, 2.05, 0.0, 1.2), 3.0
    )
    monkeypatch.setattr(navigation, "find_task", lambda *_: task)

    def make(**options):
        env = Navigation(image_size=16, **options)
        env.reset(seed=0)
        return env

    return make


def turn_and_go(rotation, forward):
    return {"rotation_angle_degrees": rotation, "forward_meters": forward}


def test_gymnasium_approves():
    check_env(gymnasium.make("lookact/Navigation-v0", image_size=16).unwrapped, skip_render_check=True)


def test_render_is_what_is_seen():
    env = gymnasium.make("lookact/Navigation-v0", image_size=16, render_mode="rgb_array")
    shown, _ = env.reset(seed=1)
    assert np.array_equal(env.render(), shown["rgb"])


def test_same_seed_same_episode_bit_for_bit():
    first, second = Navigation(image_size=24), Navigation(image_size=24)
    for seed in range(3):
        outcomes = [env.reset(seed=seed) for env in (first, second)]
        rng = np.random.default_rng(seed)
        for _ in range(4):
            (shown, info, *_), (again, same, *_) = outcomes
            assert info == same
            assert all(np.array_equal(shown[key], again[key]) for key in shown)
            move = random_move(rng, first.limits).json()
            outcomes = [(shown, info, *rest) for shown, *rest, info in (env.step(move) for env in (first, second))]
            assert outcomes[0][2:] == outcomes[1][2:]
            if outcomes[0][3] or outcomes[0][4]:
                break


def test_options_fix_the_episode_whatever_the_seed():
    env = Navigation(image_size=16)
    options = {"scene_seed": 5, "start_seed": 6}
    (shown, info), (again, same) = (env.reset(seed=seed, options=options) for seed in (1, 2))
    assert info == same
    assert np.array_equal(shown["rgb"], again["rgb"])
    _, other = env.reset(seed=1, options=options | {"start_seed": 7})
    assert other["scene_id"] == info["scene_id"]
    assert other["question_id"] != info["question_id"]


def test_walking_straight_there_has_spl_one(corridor):
    env = corridor()
    _, reward, terminated, truncated, info = env.step(AHEAD)
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["distance_to_goal"] == pytest.approx(1.5)
    _, reward, terminated, truncated, info = env.step(AHEAD)
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    assert info["path_length"] == pytest.approx(3.0)
    assert info["spl"] == pytest.approx(1.0)


def test_a_detour_costs_spl(corridor):
    env = corridor()
    env.step(turn_and_go(90, 0.5))
    env.step(turn_and_go(-90, 1.5))
    info = env.step(AHEAD)[-1]
    assert info["success"]
    assert info["spl"] == pytest.approx(3.0 / 3.5)


def test_an_unreadable_action_moves_nothing_but_costs_a_turn(corridor):
    env = corridor()
    shown, reward, terminated, truncated, info = env.step("I go to the chair.")
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["valid_action"] is False
    assert "JSON" in info["action_error"]
    assert shown["pose"] == pytest.approx([1.05, 2.05, 0.0, 1.2])
    assert info["turn"] == 1
    assert env.step(AHEAD)[-1]["valid_action"] is True


def test_collision_is_reported_and_counted(corridor):
    env = corridor()
    info = env.step(turn_and_go(180, 1.5))[-1]
    assert info["collided"]
    assert info["path_length"] == pytest.approx(1.05 - 0.2, abs=0.1)
    info = env.step(turn_and_go(180, 0.5))[-1]
    assert not info["collided"]
    assert info["collisions"] == 1


def test_truncated_after_the_last_turn_and_terminated_when_it_arrives_on_it(corridor):
    env = corridor(max_turns=2)
    assert env.step(turn_and_go(90, 0))[2:4] == (False, False)
    assert env.step(turn_and_go(90, 0))[2:4] == (False, True)
    env.reset(seed=0)
    env.step(AHEAD)
    assert env.step(AHEAD)[2:4] == (True, False)
    with pytest.raises(EnvError, match="reset"):
        env.step(AHEAD)


def test_progress_telescopes_to_the_difference_of_potentials(corridor):
    gamma, weight = 0.9, 0.5
    env = corridor(progress_weight=weight, gamma=gamma, max_turns=6)
    rng, total = np.random.default_rng(0), 0.0
    for turn in range(6):
        _, reward, terminated, _, info = env.step(random_move(rng, env.limits).json())
        assert reward == pytest.approx(info["goal_reward"] + info["progress_reward"])
        total += gamma**turn * info["progress_reward"]
        if terminated:
            break
    start, end = -1.0, -info["distance_to_goal"] / 3.0
    assert total == pytest.approx(weight * (gamma ** info["turn"] * end - start))


def test_undiscounted_progress_of_a_success_is_the_weight(corridor):
    env = corridor(progress_weight=0.5)
    assert env.step(AHEAD)[1] + env.step(AHEAD)[1] == pytest.approx(1.5)


def test_the_chat_reads_the_question_then_how_it_went(corridor):
    env = corridor(max_turns=4)
    shown, info = env.reset(seed=0)
    first = observe(shown, info)
    assert first.text == "Go to the chair. Turn 1 of 4."
    assert np.array_equal(first.images["head"], shown["rgb"])
    assert first.depth.shape == (16, 16)
    texts = []
    for action in (turn_and_go(180, 1.5), "what?", turn_and_go(180, 0.1), turn_and_go(0, 0.1)):
        shown, *_, info = env.step(action)
        texts.append(observe(shown, info).text)
    assert texts == [
        "Blocked. Go to the chair. Turn 2 of 4.",
        "Invalid. Go to the chair. Turn 3 of 4.",
        "Moved. Go to the chair. Turn 4 of 4.",
        "Moved. Go to the chair. Out of turns.",
    ]


def test_an_impossible_setting_is_refused():
    with pytest.raises(ConfigError, match="scenes"):
        Navigation(scenes=[])


def test_a_recorded_scene_is_walked_like_any_other(tmp_path):
    save_scene(generate_room(4), tmp_path)
    env = Navigation(scenes=[str(tmp_path)], image_size=16)
    _, info = env.reset(seed=0)
    assert info["scene_id"] == "room-4"
    assert env.step(AHEAD)[-1]["valid_action"]


@pytest.mark.parametrize("shared_memory", [True, False])
def test_worker_processes_run_the_same_episodes(shared_memory):
    make = lambda: Navigation(image_size=16)  # noqa: E731
    vector = AsyncVectorEnv([make, make], shared_memory=shared_memory)
    singles = [make(), make()]
    arrays = ("rgb", "depth", "pose") if shared_memory else tuple(vector.single_observation_space)
    moves = ([AHEAD, "no"], ['{"rotation_angle_degrees": 90, "forward_meters": 0.5}', AHEAD])
    try:
        outcomes = [vector.reset(seed=[3, 4])] + [vector.step(tuple(pair))[::4] for pair in moves]
        expected = [env.reset(seed=seed) for env, seed in zip(singles, (3, 4))]
        for turn, (shown, infos) in enumerate(outcomes):
            for row, (single, info) in enumerate(expected):
                assert all(np.array_equal(shown[key][row], single[key]) for key in arrays)
                assert all(infos[key][row] == value for key, value in info.items())
            if turn < len(moves):
                expected = [env.step(move)[::4] for env, move in zip(singles, moves[turn])]
    finally:
        vector.close()


def test_episodes_from_one_start_share_a_view_that_none_can_change():
    envs = [Navigation(image_size=32) for _ in range(2)]
    first, second = (env.reset(seed=3)[0]["rgb"] for env in envs)
    assert envs[0].walker.view is envs[1].walker.view
    assert not envs[0].walker.view.rgb.flags.writeable
    first[:] = 0
    assert second.any()
    np.testing.assert_array_equal(envs[0].reset(seed=3)[0]["rgb"], second)


@pytest.fixture
def homes(tmp_path):
    return write_notes(tmp_path / "homes.json", {"home-1": living_room(), "home-2": living_room(turned=30)})


def test_a_scene_a_pose_a_goal_and_a_question_may_be_given(homes):
    env = Navigation(scenes=[homes], image_size=16)
    options = {"scene": "home-2", "pose": (0.5, 0.5, 1.0), "goal": "sofa", "question": "Where may I sit?"}
    shown, info = env.reset(seed=0, options=options)
    assert (info["scene_id"], info["goal"], info["question"]) == ("home-2", "sofa", "Where may I sit?")
    assert shown["question"] == "Where may I sit?"
    np.testing.assert_allclose(shown["pose"], [0.5, 0.5, 1.0, 1.2])
    # whatever is not given is drawn, and each is given on its own
    assert env.reset(seed=0, options={"goal": "TV"})[1]["goal"] == "tv monitor"
    assert env.reset(seed=0, options={"scene": "home-1"})[1]["scene_id"] == "home-1"
    assert env.reset(seed=0, options={"pose": [0.5, 0.5, 0.0, 1.5]})[0]["pose"][3] == 1.5


def test_a_generated_room_is_chosen_by_its_seed():
    env = Navigation(image_size=16)
    assert env.reset(seed=3, options={"scene": "room-7"})[1]["scene_id"] == "room-7"
    assert env.reset(seed=3, options={"scene": 8})[1]["scene_id"] == "room-8"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"scene": "home-9"}, "option scene is 'home-9': 2 scenes are given, such as home-1, home-2"),
        ({"goal": "piano"}, "option goal is 'piano': home-1 has bed, sofa, table, tv_monitor"),
        ({"goal": 3}, "option goal is 3: give it as text"),
        ({"question": " "}, "option question is ' ': give it as text"),
        ({"pose": (1.0, 2.0)}, r"option pose is \(1\.0, 2\.0\): give x, y in metres, yaw in radians"),
        ({"pose": "here"}, "option pose is 'here'"),
        ({"pose": (0.0, float("nan"), 0.0)}, "option pose is"),
        ({"pose": (50, 0, 0)}, r"option pose stands at \(50, 0\), where no floor is free: home-1 spans -2\.\d … 2\.\d"),
        ({"pose": (0.5, 0.5, 0), "goal": "table"}, "is at a goal already, or has no way to one"),
        ({"route": 7}, "option route is no route_planning row"),
    ],
)
def test_bad_options_are_one_line(homes, options, problem):
    env = Navigation(scenes=[homes], image_size=16)
    with pytest.raises(EnvError, match=problem) as error:
        env.reset(seed=0, options={"scene": "home-1", **options})
    assert "\n" not in str(error.value)


def test_of_several_alike_one_is_chosen_by_its_uid(tmp_path):
    objects = {"chair": [note(x, y, (0.5, 0.5, 0.9)) for x, y in ((0, 0), (4, 4))], "bed": [note(0, 4, (1, 1, 0.5))]}
    env = Navigation(
        scenes=[write_notes(tmp_path / "n.json", {"two": room(objects, size=40, centre=(2, 2))})], image_size=16
    )
    with pytest.raises(EnvError, match="option goal is 'chair', and two has 2: give one of two/chair/0, two/chair/1"):
        env.reset(seed=0, options={"goal": "chair"})
    env.reset(seed=0, options={"goal": "two/chair/1"})
    assert env.task.goal == 1


def test_rooms_without_their_name_are_asked_for_a_name():
    with pytest.raises(EnvError, match="option scene is 'kitchen': rooms are generated here, give room-7 or a number"):
        Navigation(image_size=16).reset(seed=0, options={"scene": "kitchen"})
