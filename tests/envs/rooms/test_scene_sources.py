"""Scenes by name, their split, and the guard that keeps VSI-Bench's from training."""

import json

import pytest

from lookact.envs.rooms.arkit import save_scene
from lookact.envs.rooms.benchmark_scenes import ARKIT_IDS
from lookact.envs.rooms.generate import generate_room
from lookact.envs.rooms.notes import load_layout
from lookact.envs.rooms.scene_sources import for_split, refuse_benchmark, scene_id, scene_sources
from lookact.envs.rooms.simulator import recorded_simulator
from lookact.errors import ConfigError, DataError
from scene_notes import living_room, real_notes, write_notes


@pytest.fixture
def notes(tmp_path):
    return write_notes(tmp_path / "homes.json", {f"home-{number}": living_room() for number in range(40)})


def test_notes_are_as_many_scenes_as_they_hold(notes):
    sources = scene_sources(["scans/7", notes])
    assert len(sources) == 41
    assert [scene_id(source) for source in sources[:3]] == ["7", "home-0", "home-1"]
    assert scene_sources(["scans/7", notes], ["home-3", "7"]) == ("scans/7", f"{notes}#home-3")
    with pytest.raises(ConfigError, match="no scene is called home-99: 40 are given"):
        scene_sources([notes], ["home-99"])


def test_notes_of_one_name_are_not_taken_for_one_another(tmp_path, monkeypatch):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        write_notes(tmp_path / name / "notes.json", {name: living_room()})
        [source] = scene_sources(["notes.json"])
        assert scene_id(source) == name
        assert load_layout("notes.json", name).scene.id == recorded_simulator(source).scene.id == name


def test_damaged_notes_are_named(tmp_path):
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(DataError, match=r"x\.json: is not a file of scene notes"):
        scene_sources([str(tmp_path / "x.json")])
    with pytest.raises(DataError, match=r"none\.json: cannot be read"):
        scene_sources([str(tmp_path / "none.json")])


def test_a_scene_is_trained_in_or_evaluated_in_never_both(notes):
    sources = scene_sources([notes])
    parts = {
        split: set(for_split(sources, split, held_out=0.5, train_on_test=False))
        for split in ("train", "train-refill1", "demo", "collect", "validate", "test")
    }
    assert parts["train"] == parts["demo"] == parts["collect"] == parts["train-refill1"]
    assert parts["validate"] == parts["test"] == set(sources) - parts["train"]
    assert 10 <= len(parts["test"]) <= 30
    assert for_split(sources, "train", held_out=0.0, train_on_test=False) == sources
    with pytest.raises(ConfigError, match=r"held_out_scenes 0\.001 leaves none of 1 scenes for 'test'"):
        for_split(sources[:1], "test", held_out=0.001, train_on_test=False)


@pytest.mark.parametrize(
    ("name", "more", "refused"),
    [
        ("home-1", {}, False),
        ("home-1", {"dataset": "arkitscenes"}, True),
        ("home-1", {"dataset": "arkitscenes", "split": "train"}, False),
        ("home-1", {"dataset": "bboxes_scannetpp"}, True),
        ("home-1", {"split": "test"}, True),
        ("41069025", {"split": "train"}, True),
    ],
)
def test_rooms_of_the_benchmark_are_not_for_training(tmp_path, name, more, refused):
    sources = scene_sources([write_notes(tmp_path / "notes.json", {name: living_room(**more)})])
    assert for_split(sources, "test", held_out=0.0, train_on_test=False) == sources
    assert for_split(sources, "train", held_out=0.0, train_on_test=True) == sources
    if not refused:
        return refuse_benchmark(sources)
    for split in ("train", "demo", "collect", "corpus"):
        with pytest.raises(ConfigError, match="not for training; evaluate on it, or set train_on_test true"):
            for_split(sources, split, held_out=0.5, train_on_test=False)


def test_folders_are_known_by_name_and_by_what_they_hold(tmp_path):
    path = write_notes(tmp_path / "notes.json", {"41069025": living_room()})
    save_scene(load_layout(path, "41069025").scene, tmp_path / "renamed")
    save_scene(generate_room(0), tmp_path / "41069025")
    save_scene(generate_room(1), tmp_path / "fine")
    refuse_benchmark([str(tmp_path / "fine")])
    for folder in ("renamed", "41069025"):
        with pytest.raises(ConfigError, match="is about 41069025, a scene of VSI-Bench"):
            refuse_benchmark([str(tmp_path / folder)])


def test_the_list_is_that_of_the_benchmarks_notes():
    path = real_notes()
    assert set(json.loads(path.read_text())) == ARKIT_IDS
    for source in scene_sources([str(path)]):
        with pytest.raises(ConfigError, match="a scene of VSI-Bench"):
            refuse_benchmark([source])
