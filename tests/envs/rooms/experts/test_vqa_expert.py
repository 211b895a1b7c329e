import numpy as np
import pytest

from lookact.envs.rooms.experts.demonstrate import demonstrate
from lookact.envs.rooms.experts.vqa_expert import VQAExpert
from lookact.envs.rooms.motion import Limits, Pose
from lookact.envs.rooms.render import Camera
from lookact.envs.rooms.simulator import render_view
from lookact.envs.rooms.spatial_vqa import SpatialVQA
from lookact.envs.rooms.vsi import Question
from lookact.text.actions import parse_move_or_answer

CAMERA = Camera.square(48)
TWO = {"tv_monitor": (5.5, 1.5, 0.3, 1.0, 1.2), "bed": (0.0, 0.0, 1.0, 1.0, 0.6)}
DISTANCE = Question(0, "mine", "s", "object_abs_distance", "How far is the tv monitor from the bed?", "4.5")
ROOM = Question(0, "mine", "s", "room_size_estimation", "How large is it?", "24")
COUNT = Question(0, "mine", "s", "object_counting", "How many beds? Count each bed.", "9")


def reply(place, pose, question, turn):
    expert = VQAExpert(question, place.scene.boxes, camera=CAMERA, limits=Limits())
    return expert.act(render_view(place, pose, CAMERA), {"collided": False, "turn": turn, "max_turns": 6})


def test_it_answers_once_it_has_seen_everything_named(make_place):
    place = make_place(6.0, 4.0, TWO)
    half = reply(place, Pose(3.0, 2.0, 0.0, 1.2), DISTANCE, turn=0)
    assert half.startswith("The tv monitor is 2.5 m ahead. No bed seen yet.")
    assert half.endswith('{"rotation_angle_degrees": 90, "forward_meters": 0.0}')
    expert = VQAExpert(DISTANCE, place.scene.boxes, camera=CAMERA, limits=Limits())
    for yaw in (0.0, np.pi):
        last = expert.act(
            render_view(place, Pose(3.0, 2.0, yaw, 1.2), CAMERA), {"collided": False, "turn": 1, "max_turns": 6}
        )
    assert last == 'The bed is 2.5 m on the left. I have seen enough. {"answer": "4.5"}'


def test_in_the_last_turn_it_guesses_what_it_has_not_seen(make_place):
    last = reply(make_place(6.0, 4.0, TWO), Pose(3.0, 2.0, 0.0, 1.2), DISTANCE, turn=5)
    assert last == 'The tv monitor is 2.5 m ahead. I must guess. {"answer": "2.0"}'


def test_it_tells_how_many_are_new_and_how_far_the_room_goes(make_place):
    place = make_place(6.0, 4.0, TWO)
    expert = VQAExpert(COUNT, place.scene.boxes, camera=CAMERA, limits=Limits())
    told = [
        expert.act(render_view(place, Pose(3.0, 2.0, yaw, 1.2), CAMERA), {"collided": False, "turn": 0, "max_turns": 6})
        for yaw in (0.0, np.pi, np.pi)
    ]
    assert [text.split(".")[0] for text in told] == ["0 new, 0 so far", "1 new, 1 so far", "0 new, 1 so far"]
    assert reply(make_place(6.0, 4.0, {}), Pose(3.0, 2.0, 0.0, 1.2), ROOM, turn=0).startswith("The wall is 3 m ahead.")


def test_what_an_edge_cuts_is_counted_in_the_view_that_holds_its_middle(make_place):
    # seen from (3, 2) the bed fills the bearings from 34 to 83 degrees, and its middle lies at 60
    place = make_place(6.0, 4.0, {"bed": (3.25, 3.0, 1.25, 1.0, 0.6)})
    expert = VQAExpert(COUNT, place.scene.boxes, camera=CAMERA, limits=Limits())
    told = []
    for turn, yaw in enumerate((0.0, np.pi / 2, np.pi, -np.pi / 2)):
        view = render_view(place, Pose(3.0, 2.0, yaw, 1.2), CAMERA)
        assert (view.instance == 0).any() == (turn < 2)
        told.append(expert.act(view, {"collided": False, "turn": turn, "max_turns": 6}))
    assert [text.split(",")[0] for text in told] == ["0 new", "1 new", "0 new", "0 new"]
    assert told[2].endswith('{"rotation_angle_degrees": 90, "forward_meters": 0.0}')
    assert told[3] == '0 new, 1 so far. I have seen enough. {"answer": "1"}'


def test_what_is_closest_is_told_by_the_gaps(make_place):
    # from the table, x = 2.5 to 3.5, it is 2 m to the tv, and 1.5 m by 0.5 m to the bed, which is 1.58 m
    place = make_place(6.0, 4.0, TWO | {"table": (2.5, 1.5, 1.0, 0.3, 0.7)})
    text = "Which of these (tv monitor, bed) is the closest to the table?"
    question = Question(0, "mine", "s", "object_rel_distance", text, "B", ("A. tv monitor", "B. bed"))
    expert = VQAExpert(question, place.scene.boxes, camera=CAMERA, limits=Limits())
    for turn, yaw in enumerate((0.0, np.pi)):
        view = render_view(place, Pose(2.0, 1.7, yaw, 1.2), CAMERA)
        last = expert.act(view, {"collided": False, "turn": turn, "max_turns": 6})
    assert last.endswith('I have seen enough. tv monitor: 2 m. bed: 1.5 m. It is bed. {"answer": "B"}')


def test_a_direction_needs_only_what_is_sought(make_place):
    text = "If I am standing by the bed and facing the table, is the tv monitor to the left or the right of the table?"
    question = Question(0, "mine", "s", "object_rel_direction_easy", text, "A", ("A. right", "B. left"))
    place = make_place(6.0, 4.0, TWO | {"table": (2.5, 3.0, 1.0, 0.3, 0.7)})
    assert reply(place, Pose(3.0, 2.0, 0.0, 1.2), question, turn=0) == (
        'The tv monitor is 2.5 m ahead. I have seen enough. It is right. {"answer": "A"}'
    )


def test_it_counts_what_it_saw_rather_than_what_is_true(make_place):
    last = reply(make_place(6.0, 4.0, TWO), Pose(3.0, 2.0, np.pi, 1.2), COUNT, turn=5)
    assert parse_move_or_answer(last) == {"answer": "1"}


@pytest.mark.slow
def test_it_scores_well_over_all_types():
    env = SpatialVQA()
    assert np.mean([demonstrate(env, seed)[-1].reward for seed in range(60)]) >= 0.9
