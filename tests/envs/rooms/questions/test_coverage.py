import numpy as np
import pytest

from lookact.envs.rooms.motion import Move, Pose, apply_move
from lookact.envs.rooms.questions.coverage import Coverage, named_boxes, visible_boxes
from lookact.envs.rooms.render import Camera
from lookact.envs.rooms.simulator import render_view
from lookact.envs.rooms.spatial_vqa import SpatialVQA
from lookact.envs.rooms.vsi import Question

CAMERA = Camera.square(48)
TWO = {"tv_monitor": (5.5, 1.5, 0.3, 1.0, 1.2), "bed": (0.0, 0.0, 1.0, 1.0, 0.6)}
BOTH = Question(0, "mine", "s", "object_abs_distance", "How far is the tv monitor from the bed?", "4.5")
ROOM = Question(0, "mine", "s", "room_size_estimation", "How large is the room?", "24")


def test_things_are_found_in_the_question_and_in_its_options():
    question = Question(0, "mine", "s", "object_rel_distance", "Closest to the bed?", "A", ("A. tv monitor", "B. sofa"))
    assert named_boxes(question, ("chair", "tv_monitor", "bed", "bed", "bedroom")) == (1, 2, 3)


def test_the_share_grows_with_each_thing_that_comes_into_view(make_place):
    place = make_place(6.0, 4.0, TWO)
    seen = Coverage(BOTH, tuple(TWO))
    assert seen.share == 0.0
    for yaw, share in ((0.0, 0.5), (0.0, 0.5), (np.pi, 1.0)):
        view = render_view(place, Pose(3.0, 2.0, yaw, 1.2), CAMERA)
        assert visible_boxes(view) == ({0} if yaw == 0.0 else {1})
        seen.add(view)
        assert seen.share == share


def test_a_question_about_the_room_counts_quarters_of_the_circle(make_place):
    place, seen = make_place(6.0, 4.0, {}), Coverage(ROOM, ())
    for yaw, share in ((0.1, 0.25), (0.2, 0.25), (1.7, 0.5), (-0.1, 0.75), (-3.0, 1.0)):
        seen.add(render_view(place, Pose(3.0, 2.0, yaw, 1.2), CAMERA))
        assert seen.share == share


@pytest.mark.parametrize("start", [0.0, -np.pi, np.pi / 2, 1e-12, -1e-12])
@pytest.mark.parametrize("turn", [90, -90])
def test_four_quarter_turns_see_the_whole_circle(make_place, start, turn):
    place, seen = make_place(6.0, 4.0, {}), Coverage(ROOM, ())
    pose = Pose(3.0, 2.0, start, 1.2)
    for quarter in range(1, 5):
        seen.add(render_view(place, pose, CAMERA))
        assert seen.share == quarter / 4
        pose = apply_move(place.space, pose, Move(turn, 0.0)).pose


def test_the_environment_tells_it_before_and_after_each_turn():
    env = SpatialVQA(image_size=48, types=("room_size_estimation",))
    _, info = env.reset(seed=0)
    assert (info["seen_share_before"], info["seen_share"]) == (0.25, 0.25)
    *_, info = env.step({"rotation_angle_degrees": 90, "forward_meters": 0.0})
    assert (info["seen_share_before"], info["seen_share"]) == (0.25, 0.5)
    *_, info = env.step({"answer": "20"})
    assert (info["seen_share_before"], info["seen_share"]) == pytest.approx((0.5, 0.5))
