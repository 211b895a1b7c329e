import numpy as np
import pytest

from lookact.envs.rooms.generate import RoomStyle
from lookact.envs.rooms.goals import Difficulty, find_task, goal_field, nearest_on_footprint
from lookact.envs.rooms.render import Renderer
from lookact.envs.rooms.scene import Box
from lookact.envs.rooms.simulator import generated_simulator
from lookact.envs.rooms.space import free_space


def test_nearest_point_of_a_turned_footprint():
    axes = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    box = Box("0", "bed", np.array([1.0, 1.0, 0.5]), np.array([2.0, 1.0, 1.0]), axes)
    # a quarter turn: 1 m wide in x, 2 m deep in y
    points = np.array([[3.0, 1.0], [1.0, 4.0], [1.2, 1.1]])
    assert nearest_on_footprint(box, points) == pytest.approx(np.array([[1.5, 1.0], [1.0, 2.0], [1.2, 1.1]]))


def test_distance_is_walked_to_where_the_goal_counts_as_reached(make_place):
    place = make_place(6.0, 4.0, {"chair": (5.0, 1.5, 1.0, 1.0, 0.9)})
    field = goal_field(place, 0, 1.0)
    at = lambda x, y: field[place.space.index(np.array([x, y]))]  # noqa: E731
    assert at(4.05, 2.05) == 0.0
    assert at(3.95, 2.05) == pytest.approx(0.1)
    assert at(1.05, 2.05) == pytest.approx(3.0)
    assert np.isinf(at(5.5, 2.0))


@pytest.mark.parametrize(("off", "reached"), [(0.0, True), (9e-7, True), (-9e-7, True), (1e-4, False)])
def test_rounding_does_not_decide_over_success(make_place, off, reached):
    # the chair stands a metre from the middle of the cell at 3.05
    field = goal_field(place := make_place(6.0, 4.0, {"chair": (4.05 + off, 1.5, 1.0, 1.0, 0.9)}), 0, 1.0)
    assert (field[place.space.index(np.array([3.05, 2.05]))] == 0.0) is np.bool_(reached)


def test_a_goal_behind_a_wall_is_not_reached(make_place):
    place = make_place(6.0, 4.0, {"chair": (3.5, 0.0, 0.5, 0.5, 0.9)})
    # a notch cuts the floor: a wall from (2.8, 0) to (3.2, 2) stands between the chair and the left half
    floor = np.array([[0, 0], [2.8, 0], [2.8, 2], [3.2, 2], [3.2, 0], [6, 0], [6, 4], [0, 4]], float)
    scene = type(place.scene)(**{**vars(place.scene), "floor": floor})
    notched = type(place)(scene, Renderer(scene), free_space(scene))
    left = notched.space.index(np.array([2.55, 0.35]))
    assert notched.space.free[left]
    assert goal_field(place, 0, 1.0)[left] == 0.0
    assert goal_field(notched, 0, 1.0)[left] > 2.0


def test_tasks_name_one_object_and_start_in_range():
    difficulty = Difficulty(success_distance=1.0, start_distance=(2.0, 3.0))
    place = generated_simulator(3, RoomStyle(distinct=False))
    tasks = [task for seed in range(20) if (task := find_task(place, seed, difficulty)) is not None]
    assert tasks
    for task in tasks:
        labels = [box.label for box in task.sim.scene.boxes]
        assert labels.count(labels[task.goal]) == 1
        assert task.label in task.question
        assert 2.0 <= task.shortest <= 3.0
        assert task.distance(task.start) == task.shortest


def test_no_task_where_nothing_is_far_enough(make_place):
    place = make_place(3.0, 3.0, {"chair": (1.0, 1.0, 1.0, 1.0, 0.9)})
    assert find_task(place, 0, Difficulty(success_distance=1.0, start_distance=(5.0, 9.0))) is None
