"""Layouts of real rooms from scene notes: what is the notes' stays as it is, and the room can be walked in."""

import json
from collections import Counter

import numpy as np
import pytest

from lookact.envs.rooms.notes import furnish_notes, load_layout, read_notes
from lookact.envs.rooms.obstacles import floor_clearance, footprint_distance, inside_floor
from lookact.envs.rooms.questions import ask
from lookact.envs.rooms.questions.facts import Facts, box_gaps, polygon_area
from lookact.envs.rooms.render import Camera, Renderer
from lookact.envs.rooms.scene import camera_pose
from lookact.envs.rooms.space import free_space
from lookact.errors import DataError
from scene_notes import living_room, note, real_notes, room, write_notes


@pytest.fixture(params=[0.0, 25.0])
def layout(request, tmp_path):
    return load_layout(write_notes(tmp_path / "notes.json", {"home-1": living_room(turned=request.param)}), "home-1")


def by_label(scene):
    return {box.label: box for box in scene.boxes}


def test_a_layout_has_the_notes_own_sizes_and_gaps_however_the_room_is_turned(layout):
    scene = layout.scene
    assert layout.problems == ()
    assert polygon_area(scene.floor) == pytest.approx(20.0)
    boxes = by_label(scene)
    assert {label: box.size.tolist() for label, box in boxes.items()} == {
        "sofa": [0.9, 1.8, 0.8], "tv_monitor": [0.05, 1.0, 0.6], "table": [0.6, 1.0, 0.45], "bed": [1.9, 1.2, 0.6],
    }  # fmt: skip
    # from the sofa's front at -1.55 to the table's edge at -0.8
    labels = [box.label for box in scene.boxes]
    assert box_gaps(scene.boxes)[labels.index("sofa"), labels.index("table")] == pytest.approx(0.75)
    # the floor is z = 0: the TV hangs 1 m above it
    assert boxes["table"].corners()[:, 2].min() == pytest.approx(0.0)
    assert boxes["tv_monitor"].corners()[:, 2].min() == pytest.approx(1.0)


def test_the_room_is_straight_holds_its_objects_and_ends_behind_what_turns_its_back_to_a_wall(layout):
    scene = layout.scene
    edges = np.roll(scene.floor, -1, axis=0) - scene.floor
    assert (np.abs(edges).min(axis=1) < 1e-9).all()
    for box in scene.boxes:
        assert inside_floor(scene.floor, box.corners()[:, :2]).all()
    # the sofa's back and the TV's are 4.475 m apart, and each has its wall right behind it
    sides = np.ptp(scene.floor, axis=0)
    assert np.abs(sides - 4.475).min() < 0.1
    for label in ("sofa", "tv_monitor"):
        assert floor_clearance(scene.floor, by_label(scene)[label].corners()[:, :2]).min() < 0.05


def test_objects_face_along_their_first_axis_and_fill_their_boxes(layout):
    scene = layout.scene
    for index, box in enumerate(scene.boxes):
        mesh = scene.vertices[np.unique(scene.faces[scene.instances == index])].astype(float)
        local = (mesh - box.centroid) @ box.axes.T
        np.testing.assert_allclose(local.min(axis=0), -box.size / 2, atol=2e-3)
        np.testing.assert_allclose(local.max(axis=0), box.size / 2, atol=2e-3)
        if box.label == "sofa":
            # the back is high, the front is a seat
            assert local[local[:, 2] > 0.35][:, 0].max() < 0.0


def test_the_screen_is_seen_from_the_sofa(layout):
    scene = layout.scene
    sofa, screen = by_label(scene)["sofa"], by_label(scene)["tv_monitor"]
    ahead = sofa.axes[0]
    pose = camera_pose(*(sofa.centroid + 0.6 * ahead)[:2], np.arctan2(ahead[1], ahead[0]), height=1.2)
    seen = Renderer(scene).render(pose[None], Camera.square(32)).instance
    assert scene.boxes.index(screen) in seen


def test_free_floor_reaches_every_object_and_a_walk_is_recorded(layout):
    space = free_space(layout.scene)
    rows, cols = np.nonzero(space.free)
    points = space.origin + (np.stack([cols, rows], axis=1) + 0.5) * space.cell
    assert all(footprint_distance(box, points).min() < 0.8 for box in layout.scene.boxes)
    assert space.contains(layout.scene.trajectory[0, :2, 3])


def test_corners_are_cut_out_where_objects_spread_further_than_the_room(tmp_path):
    # an L: a table at each end of 5 m by 5 m, of which 16 m² are floor
    objects = {"table": [note(x, y, (1, 1, 0.7)) for x, y in ((0, 0), (4, 0), (0, 4))]}
    path = write_notes(tmp_path / "notes.json", {"l": room(objects, size=16.0, centre=(2, 2))})
    layout = load_layout(path, "l")
    assert len(layout.scene.floor) == 6
    assert polygon_area(layout.scene.floor) == pytest.approx(16.0)
    assert layout.problems == ()


def test_what_cannot_be_had_is_told(tmp_path):
    tables = [note(x, y, (0.9, 0.9, 0.7)) for x in range(3) for y in range(3)]
    path = write_notes(tmp_path / "notes.json", {"full": room({"table": tables}, size=4.0, centre=(1, 1))})
    with pytest.raises(DataError, match="scene full is too full to stand in"):
        load_layout(path, "full")
    ring = [note(2.5 + x, 2.5 + y, (1.05, 1.05, 0.7)) for x in (-1, 0, 1) for y in (-1, 0, 1) if (x, y) != (0, 0)]
    inner = {"table": ring, "chair": [note(2.5, 2.5, (0.4, 0.4, 0.9))]}
    layout = furnish_notes(
        read_notes(write_notes(tmp_path / "ring.json", {"ring": room(inner, size=36.0, centre=(2.5, 2.5))}))["ring"]
    )
    assert [problem for problem in layout.problems if "chair" in problem] == [
        "ring/chair/0: no free floor within 0.8 m of it"
    ]
    with pytest.raises(DataError, match=r"ring\.json: has no scene 'x'; it has 1, such as ring"):
        load_layout(str(tmp_path / "ring.json"), "x")


def test_a_cooktop_gets_a_counter_and_an_unknown_thing_a_block(tmp_path):
    objects = {"stove": [note(0, 0, (0.6, 0.6, 0.04), bottom=-0.2)], "chair": [note(2, 0, (0.5, 0.5, 0.9))],
               "trash bin": [note(3, 1, (0.3, 0.3, 0.4))]}  # fmt: skip
    scene = load_layout(write_notes(tmp_path / "notes.json", {"k": room(objects, size=15.0)}), "k").scene
    lowest = [scene.vertices[np.unique(scene.faces[scene.instances == i])][:, 2].min() for i in range(3)]
    np.testing.assert_allclose(lowest, 0.0, atol=1e-6)
    assert [box.label for box in scene.boxes] == ["stove", "chair", "trash_bin"]


@pytest.mark.slow
def test_all_real_rooms_are_furnished_and_questions_about_them_have_the_notes_answers():
    path = real_notes()
    notes = json.loads(path.read_text())
    told, asked = 0, Counter()
    for name, truth in notes.items():
        layout = load_layout(path, name)
        scene = layout.scene
        told += any("m²" in problem for problem in layout.problems)
        assert abs(polygon_area(scene.floor) - truth["room_size"]) < 0.05 or layout.problems
        assert all(inside_floor(scene.floor, box.centroid[:2]) for box in scene.boxes)
        counts = {label.replace("tv", "tv monitor"): count for label, count in truth["object_counts"].items()}
        gaps = Facts(read_notes(str(path))[name]).gaps
        np.testing.assert_allclose(Facts(scene).gaps, gaps, atol=1e-9)
        types = ("object_counting", "object_size_estimation", "room_size_estimation")
        for question in ask(scene, seed=1, types=types, per_type=3):
            asked[question.question_type] += 1
            if question.question_type == "room_size_estimation":
                assert question.ground_truth == f"{truth['room_size'] + 1e-9:.1f}" or layout.problems
                continue
            [label] = [
                label for label in counts if f"{label}(s)" in question.question or f"the {label}," in question.question
            ]
            if question.question_type == "object_counting":
                assert question.ground_truth == str(counts[label])
            else:
                [box] = truth["object_bbox"][label.replace("tv monitor", "tv")]
                assert question.ground_truth == f"{100 * max(box['axesLengths']) + 1e-9:.0f}"
    # objects of two rooms spread further than their size allows, even with all four corners cut
    assert told == 2
    assert len(notes) == asked["room_size_estimation"] == 150
    assert asked["object_counting"] > 150
    assert asked["object_size_estimation"] > 150
