"""VSI-Bench's route rows, read and walked."""

import math

import numpy as np
import pytest

from lookact.envs.rooms.generate import RoomStyle, generate_room
from lookact.envs.rooms.motion import Pose
from lookact.envs.rooms.navigation import Navigation
from lookact.envs.rooms.questions import ask
from lookact.envs.rooms.routes import Route, RouteWalk, read_route
from lookact.envs.rooms.spatial_vqa import SpatialVQA
from lookact.envs.rooms.vsi import Question
from lookact.errors import EnvError
from scene_notes import note, room, write_notes

ACTIONS = (
    "You will perform the following actions (Note: for each [please fill in], choose either 'turn back,' 'turn left,' "
    "or 'turn right.'): "
)
DONE = " You have reached the final destination."


def row(text, right, *others, scene="plan"):
    options = tuple(f"{letter}. {words}" for letter, words in zip("ABCD", (right, *others)))
    return Question(5, "generated", scene, "route_planning", text, "A", options)


@pytest.mark.parametrize(
    ("text", "right", "expected"),
    [
        (
            "You are a robot beginning at the bed facing the tv. You want to navigate to the toilet. " + ACTIONS
            + "1. Go forward until the TV 2. [please fill in] 3. Go forward until the shower 4. [please fill in] "
            "5. Go forward until the toilet." + DONE,
            "Turn Left, Turn Right",
            Route("bed", "tv", ("TV", "shower", "toilet"), (None, 0, 1)),
        ),
        (
            "You are a robot beginning at the door and facing the tub. You want to navigate to the toilet. " + ACTIONS
            + "1. [please fill in]. 2. Go forward until the bathroom sink. 3. [please fill in]. "
            "4. Go forward until the toilet." + DONE,
            "Turn Back, Turn Left",
            Route("door", "tub", ("bathroom sink", "toilet"), (2, 0)),
        ),
    ],
)  # fmt: skip
def test_rows_are_read_as_people_wrote_them(text, right, expected):
    assert read_route(row(text, right, "Turn Left, Turn Left")) == expected


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("How many chairs?", "Turn Left"),
        ("You are a robot beginning at the bed facing the tv. You want to navigate to the toilet.", "Turn Left"),
        ("You are a robot beginning at the bed facing the tv. You want to navigate to the sofa. 1. [please fill in] "
         "2. Go forward until the sofa." + DONE, "Turn Left, Turn Left"),
    ],
)  # fmt: skip
def test_what_is_no_route_is_one_line(text, right):
    with pytest.raises(EnvError, match="row 5 is no route"):
        read_route(row(text, right))


def test_generated_routes_come_back_as_their_answers_have_them():
    found = 0
    for seed in range(3):
        scene = generate_room(seed, RoomStyle(objects=(8, 10), side=(6.0, 7.0)))
        for question in ask(scene, seed=seed, types=["route_planning"], per_type=4):
            route = read_route(question)
            [right] = [option[3:] for option in question.options if option[0] == question.ground_truth]
            turns = [turn for turn in route.turns if turn is not None]
            assert ", ".join(("Turn Left", "Turn Right", "Turn Back")[turn] for turn in turns) == right
            found += 1
    assert found > 3


@pytest.fixture
def plan(tmp_path):
    """A bed in the west, a table 4 m east of it, a sofa 4 m north of the table: from the bed past the table, left."""
    objects = {"bed": [note(0, 0, (1, 1, 0.5))], "table": [note(4, 0, (0.6, 0.6, 0.7))],
               "sofa": [note(4, 4, (0.8, 0.8, 0.8))], "chair": [note(0, 4, (0.4, 0.4, 0.9))]}  # fmt: skip
    return write_notes(tmp_path / "notes.json", {"plan": room(objects, size=36.0, centre=(2, 2))})


def past_the_table(turn="Turn Left"):
    text = (
        "You are a robot beginning at the bed and facing the table. You want to navigate to the sofa. " + ACTIONS
        + "1. Go forward until the table 2. [please fill in] 3. Go forward until the sofa." + DONE
    )  # fmt: skip
    return row(text, turn, "Turn Up")


def walk(env, places):
    """The last step's outcome on straight legs through points (x, y)."""
    outcome = None
    for x, y in places:
        while (way := np.array([x, y]) - (env.walker.pose.x, env.walker.pose.y)) @ way > 1e-4:
            turn = math.degrees(math.atan2(way[1], way[0]) - env.walker.pose.yaw)
            turn = (turn + 180) % 360 - 180
            outcome = env.step({"rotation_angle_degrees": turn, "forward_meters": float(np.hypot(*way))})
            if outcome[2] or outcome[3]:
                return outcome
    return outcome


def middle(env, label):
    [box] = [box for box in env.task.sim.scene.boxes if box.label == label]
    return box.centroid[:2]


@pytest.mark.parametrize(("turn", "success"), [("Turn Left", True), ("Turn Right", False), ("Turn Back", False)])
def test_the_end_counts_only_along_the_right_turns(plan, turn, success):
    env = Navigation(scenes=[plan], image_size=16, max_turns=30)
    _, info = env.reset(seed=0, options={"route": past_the_table(turn)})
    assert (info["scene_id"], info["goal"]) == ("plan", "sofa")
    # beside the bed, looking at the table
    start, table, sofa = env.walker.pose, middle(env, "table"), middle(env, "sofa")
    assert math.degrees(math.atan2(*(table - (start.x, start.y))[::-1]) - start.yaw) == pytest.approx(0.0, abs=1e-6)
    # from 0.7 m before the bed's middle 2 m to a metre before the table; 1.3 m from its ring to the sofa's
    assert info["shortest_path"] == pytest.approx(3.3, abs=0.2)
    *_, terminated, truncated, last = walk(env, [table - (0.9, 0), sofa - (0.9, 0.9)])
    assert terminated
    assert not truncated
    assert last["distance_to_goal"] == 0.0
    assert last["success"] is success
    assert last["goal_reward"] == float(success)


def test_the_end_without_the_stops_is_not_the_end(plan):
    env = Navigation(scenes=[plan], image_size=16, max_turns=30)
    env.reset(seed=0, options={"route": past_the_table()})
    sofa = middle(env, "sofa")
    *_, terminated, _, last = walk(env, [middle(env, "bed") + np.array([0.9, 2.0]), sofa - (0.95, 0)])
    assert not terminated
    assert not last["success"]
    # by way of the table it is, however long that took
    assert last["distance_to_goal"] > 2.0
    *_, terminated, _, last = walk(env, [middle(env, "table") - (0.95, 0), sofa - (0.95, 0.5)])
    assert terminated
    assert last["success"]
    assert last["spl"] < 0.6


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("the sofa", "the blue desk"), "'blue desk' names no boxes"),
        (("beginning at the bed", "beginning at the door"), "'door' names no boxes"),
    ],
)
def test_landmarks_without_a_box_are_named(plan, change, problem):
    question = past_the_table()
    other = row(question.question.replace(*change), "Turn Left")
    with pytest.raises(EnvError, match=problem):
        Navigation(scenes=[plan], image_size=16).reset(seed=0, options={"route": other})


def test_a_row_may_be_a_dict(plan):
    env = Navigation(scenes=[plan], image_size=16)
    question = past_the_table()
    columns = {"id": 5, "scene_name": "plan", "question": question.question, "options": list(question.options)}
    _, info = env.reset(seed=0, options={"route": {**columns, "ground_truth": "A"}})
    assert info["question_id"] == "plan_route_planning_5"
    with pytest.raises(EnvError, match="option route is no route_planning row"):
        env.reset(seed=0, options={"route": columns})


def test_a_route_is_answered_from_where_it_begins(plan):
    env = SpatialVQA(rows=[(past_the_table(), f"{plan}#plan")], image_size=16)
    _, info = env.reset(seed=0)
    assert env.walker.pose == RouteWalk(env.task.sim, past_the_table(), 1.0).start
    assert info["question_type"] == "route_planning"
    *_, over, _, last = env.step('{"answer": "A"}')
    assert over
    assert last["answer_reward"] == 1.0


def test_where_no_landmark_has_a_box_a_route_is_asked_from_anywhere(plan):
    question = row(past_the_table().question.replace("bed", "door"), "Turn Left")
    env = SpatialVQA(rows=[(question, f"{plan}#plan")], image_size=16)
    env.reset(seed=0)
    assert isinstance(env.walker.pose, Pose)
