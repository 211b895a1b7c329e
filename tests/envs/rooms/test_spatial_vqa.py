import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv

from lookact.envs.rooms.arkit import save_scene
from lookact.envs.rooms.generate import RoomStyle, generate_room
from lookact.envs.rooms.spatial_vqa import SpatialVQA, asked_pose, observe, style_for
from lookact.envs.rooms.vsi import Question
from lookact.envs.rooms.wordings import TYPES
from lookact.errors import ConfigError, EnvError

MOVE = '{"rotation_angle_degrees": 90, "forward_meters": 0.25}'


def begin(seed=0, **options):
    env = SpatialVQA(image_size=16, **options)
    return env, *env.reset(seed=seed)


def test_gymnasium_approves():
    check_env(gymnasium.make("lookact/SpatialVQA-v0", image_size=16).unwrapped, skip_render_check=True)


def test_the_right_letter_scores_one_and_ends_it():
    env, _, info = begin(types=("object_rel_direction_easy",))
    env.step(MOVE)
    _, reward, terminated, truncated, info = env.step(f'Left. {{"answer": "{info["ground_truth"]}"}}')
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["answered"]
    assert info["answer_reward"] == 1.0
    with pytest.raises(EnvError, match="reset"):
        env.step(MOVE)


def test_a_number_is_scored_by_relative_accuracy():
    env, _, info = begin(types=("room_size_estimation",))
    # 28% off is within the thresholds .50, .55, .60, .65 and .70 of the ten
    _, reward, *_ = env.step({"answer": 1.28 * float(info["ground_truth"])})
    assert reward == pytest.approx(0.5)


def test_the_last_turn_demands_an_answer():
    env, shown, _ = begin(max_turns=2)
    assert shown["prompt"].endswith("Turn 1 of 2: move or answer.")
    shown, *_ = env.step(MOVE)
    assert shown["prompt"].endswith("Turn 2 of 2: answer now.")
    shown, reward, terminated, truncated, info = env.step(MOVE)
    assert (reward, terminated, truncated, info["answered"]) == (0.0, True, False, False)
    assert shown["prompt"] == "Done."


def test_moving_costs_what_was_asked_and_answering_does_not():
    env, _, info = begin(types=("object_rel_distance",), turn_cost=0.1)
    assert env.step(MOVE)[1] == pytest.approx(-0.1)
    _, reward, *_, invalid = env.step("hm")
    assert reward == pytest.approx(-0.1)
    assert not invalid["valid_action"]
    _, reward, *_, last = env.step({"answer": info["ground_truth"]})
    assert reward == last["answer_reward"] + last["turn_reward"] == 1.0


def test_an_unreadable_reply_moves_nothing():
    env, shown, _ = begin()
    after, *_ = env.step("let me think")
    assert np.array_equal(after["pose"], shown["pose"])
    assert after["prompt"].startswith("Invalid. ")


def test_same_seed_same_question_and_options_win():
    for seed in range(3):
        (_, shown, info), (_, again, same) = begin(seed), begin(seed)
        assert info == same
        assert all(np.array_equal(shown[key], again[key]) for key in shown)
    env = SpatialVQA(image_size=16)
    options = {"scene_seed": 1, "start_seed": 2}
    assert env.reset(seed=1, options=options)[1] == env.reset(seed=2, options=options)[1]


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_is_asked(kind):
    _, shown, info = begin(types=(kind,))
    assert info["question_type"] == kind
    assert len(shown["prompt"]) < 1000


def test_types_are_asked_alike_often_in_rooms_that_suit_them():
    kinds = ("object_counting", "object_rel_direction_easy")
    style = RoomStyle(classes=("bed", "oven", "sink", "sofa"), objects=(3, 6), side=(4.0, 6.0))
    env = SpatialVQA(types=kinds, style=style, image_size=16)
    asked = [env.reset(seed=seed)[1]["question_type"] for seed in range(30)]
    assert 8 <= asked.count("object_counting") <= 22
    counting, relating = (style_for(kind, style, 0) for kind in kinds)
    assert 1 <= len(counting.classes) <= 2
    assert not counting.distinct
    # four kinds make four things that are the only one of theirs
    assert (relating.objects, relating.classes, relating.distinct) == ((3, 4), style.classes, True)


def test_a_direction_may_be_asked_where_it_says_that_one_stands(make_place):
    things = {"bed": (0.0, 1.5, 1.0, 1.0, 0.6), "oven": (5.0, 1.5, 0.6, 1.0, 1.2), "sink": (2.0, 3.5, 0.5, 0.5, 1.0)}
    text = "If I am standing by the bed and facing the oven, is the sink to the left or the right of the oven?"
    question = Question(0, "mine", "s", "object_rel_direction_easy", text, "A", ("A. left", "B. right"))
    pose = asked_pose(make_place(6.0, 4.0, things), question)
    # the bed's middle is at (0.5, 2), the oven's at (5.3, 2): beside the one, looking at the other
    assert np.hypot(pose.x - 0.5, pose.y - 2.0) < 1.0
    assert pose.yaw == pytest.approx(np.arctan2(2.0 - pose.y, 5.3 - pose.x))


def test_given_rows_are_asked_in_their_scenes(tmp_path):
    save_scene(generate_room(9), tmp_path)
    row = Question(7, "mine", "room-9", "object_counting", "How many beds?", "3")
    env = SpatialVQA(rows=[(row, str(tmp_path))], image_size=16)
    shown, info = env.reset(seed=0)
    assert shown["prompt"].startswith("How many beds?")
    assert (info["scene_id"], info["question_id"]) == ("room-9", "room-9_object_counting_7")
    assert env.step('{"answer": "3"}')[1] == 1.0


def test_the_chat_reads_the_prompt():
    _, shown, info = begin()
    observation = observe(shown, info)
    assert observation.text == shown["prompt"]
    assert list(observation.images) == ["head"]


def test_unknown_types_are_refused():
    with pytest.raises(ConfigError, match="object_smell"):
        SpatialVQA(types=("object_smell",))


def test_worker_processes_ask_the_same_questions():
    make = lambda: SpatialVQA(image_size=16)  # noqa: E731
    vector = AsyncVectorEnv([make, make], shared_memory=True)
    try:
        shown, infos = vector.reset(seed=[3, 4])
        for row, seed in enumerate((3, 4)):
            expected, info = make().reset(seed=seed)
            assert all(np.array_equal(shown[key][row], expected[key]) for key in ("rgb", "depth", "pose"))
            assert all(infos[key][row] == value for key, value in info.items())
        *_, infos = vector.step((MOVE, MOVE))
        assert all(prompt.endswith("Turn 2 of 6: move or answer.") for prompt in infos["prompt"])
    finally:
        vector.close()
