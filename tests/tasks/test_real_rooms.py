"""The tasks in layouts of real rooms: split by scene, asked about, and VSI-Bench's never trained on by any path."""

import ast
import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lookact
from lookact.cli import main
from lookact.envs.rooms import simulator
from lookact.envs.rooms.arkit import save_scene
from lookact.envs.rooms.notes import load_layout
from lookact.envs.rooms.vsi import Question, load_questions
from lookact.errors import ConfigError, DataError, EnvError
from lookact.recipes.ppo import config as ppo
from lookact.recipes.ppo.evaluate import asked_task
from lookact.recipes.ppo.preflight import preflight as ppo_preflight
from lookact.recipes.rloo import config as rloo
from lookact.recipes.rloo.preflight import preflight as rloo_preflight
from lookact.tasks.navigation import NavigationTask, make_navigation
from lookact.tasks.registry import find_task, make_task
from lookact.tasks.settings import NavigationConfig, SpatialVQAConfig
from lookact.tasks.spatial_vqa import SpatialVQATask, make_spatial_vqa
from lookact.training.preflight import Job
from question_files import save_questions
from scene_notes import living_room, note, real_notes, room, write_notes

TRAINS = ("train", "train-refill1", "demo", "collect")
NAVIGATION = NavigationConfig(image_size=32, start_distance=(1.0, 6.0))
VQA = SpatialVQAConfig(image_size=32, types=("object_counting", "room_size_estimation"), per_type=2)


@pytest.fixture
def homes(tmp_path):
    rooms = {f"home-{number}": living_room(turned=5.0 * number) for number in range(8)}
    # nothing in it is the only one of its kind: nothing can be asked for
    rooms["home-3"] = room(
        {"chair": [note(0, 0, (0.5, 0.5, 0.9)), note(2, 2, (0.5, 0.5, 0.9))]}, size=12.0, centre=(1, 1)
    )
    return write_notes(tmp_path / "homes.json", rooms)


@pytest.fixture
def benchmark(tmp_path):
    return write_notes(tmp_path / "val.json", {"41069025": living_room(dataset="arkitscenes")})


def walked(task, specs):
    return [task.make_env().reset(seed=spec.seed, options=spec.options)[1]["scene_id"] for spec in specs]


def test_evaluation_walks_through_the_scenes_in_order_and_leaves_out_what_has_no_task(homes):
    task = make_navigation(replace(NAVIGATION, scenes=(homes,)), 0)
    specs = task.specs(0, "test", groups=9)
    assert walked(task, specs) == [f"home-{number}" for number in (0, 1, 2, 4, 5, 6, 7, 0, 1)]
    # the same room with another start
    assert specs[0].options["start_seed"] != specs[7].options["start_seed"]


def test_a_group_walks_in_one_room_and_ids_choose_among_them(homes):
    task = make_navigation(replace(NAVIGATION, scenes=(homes,), scene_ids=("home-5", "home-6")), 0)
    specs = task.specs(0, "train", groups=6, group_size=2)
    names = walked(task, specs)
    assert names[::2] == names[1::2]
    assert set(names) == {"home-5", "home-6"}
    with pytest.raises(ConfigError, match="no scene is called attic"):
        make_navigation(replace(NAVIGATION, scenes=(homes,), scene_ids=("attic",)), 0).specs(0, "test", groups=1)


def test_a_share_of_training_is_in_generated_rooms_and_evaluation_is_not(homes):
    env = replace(NAVIGATION, scenes=(homes,), held_out_scenes=0.5, generated_share=0.5)
    task = make_navigation(env, 0)
    held_out = set(walked(task, task.specs(0, "test", groups=8)))
    assert held_out <= {f"home-{number}" for number in range(8)}
    names = walked(task, task.specs(0, "train", groups=40, group_size=2))
    assert names[::2] == names[1::2]
    generated = [name for name in names if not name.startswith("home-")]
    assert 20 < len(generated) < 60
    assert len(set(generated)) == len(generated) / 2
    assert not held_out & set(names)


def test_vision_is_pretrained_in_the_scenes_that_are_trained_in(homes):
    env = replace(NAVIGATION, scenes=(homes,), held_out_scenes=0.5, generated_share=0.5)
    images = list(make_navigation(env, 0).pretraining_images(0, rooms=range(12), per_room=1))
    plain = list(make_navigation(replace(env, scenes=()), 0).pretraining_images(0, rooms=range(12), per_room=1))
    same = [np.array_equal(one.rgb, other.rgb) for one, other in zip(images, plain)]
    # a generated room is the same beside scenes as without them
    assert 0 < sum(same) < 12


def test_held_out_scenes_are_not_trained_in(homes):
    task = make_navigation(replace(NAVIGATION, scenes=(homes,), held_out_scenes=0.5), 0)
    trained = {name for split in TRAINS for name in walked(task, task.specs(0, split, groups=12))}
    tested = {name for split in ("validate", "test") for name in walked(task, task.specs(0, split, groups=12))}
    assert trained
    assert tested
    assert not trained & tested


def test_questions_are_split_by_scene_as_well(homes):
    env = replace(VQA, scenes=(homes,), held_out_scenes=0.5)
    task = make_spatial_vqa(env, 0)
    trained = {name for split in TRAINS for name in walked(task, task.specs(0, split, groups=12))}
    tested = set(walked(task, task.specs(0, "test", groups=12)))
    assert trained
    assert tested
    assert not trained & tested
    # evaluation of vqa-ppo asks each question once, of scenes that are held out or that are named for it
    cfg = replace(ppo.PRESETS["debug"], env=env)
    once = asked_task(cfg, None)
    assert {once.rows[spec.options["scene_seed"]][0].scene_name for spec in once.specs(0, "test", groups=99)} == tested
    named = asked_task(replace(cfg, evaluation=replace(cfg.evaluation, scenes=(homes,))), None)
    assert len(named.specs(0, "test", groups=99)) == len(named.rows)


def test_a_start_far_from_any_goal_is_asked_for_in_vain(homes):
    task = make_navigation(replace(NAVIGATION, scenes=(homes,), start_distance=(40.0, 50.0)), 0)
    with pytest.raises(ConfigError, match=r"no start \(40\.0, 50\.0\) m from a goal in 8 scenes"):
        task.specs(0, "test", groups=2)


def test_only_classes_that_are_set_are_asked_for(homes):
    task = make_navigation(replace(NAVIGATION, scenes=(homes,), classes=("sofa",)), 0)
    infos = [task.make_env().reset(seed=spec.seed, options=spec.options)[1] for spec in task.specs(0, "test", groups=4)]
    assert {info["goal"] for info in infos} == {"sofa"}


ROUTE = (
    "You are a robot beginning at the sofa and facing the table. You want to navigate to the tv. You will perform the "
    "following actions (Note: for each [please fill in], choose either 'turn back,' 'turn left,' or 'turn right.'): "
    "1. Go forward until the {} 2. [please fill in] 3. Go forward until the tv. You have reached the final destination."
)


def route_rows(scene):
    options = ("A. Turn Left", "B. Turn Right", "C. Turn Back")
    return [
        Question(number, "arkitscenes", scene, kind, ROUTE.format(stop), "A", options)
        for number, (kind, stop) in enumerate(
            (("route_planning", "bed"), ("route_planning", "blue desk"), ("object_counting", "bed"))
        )
    ]


def test_routes_of_a_file_are_walked_and_those_that_cannot_be_are_told(homes, tmp_path, caplog):
    save_questions([*route_rows("home-1"), *route_rows("elsewhere")], tmp_path / "vsi_bench.jsonl")
    env = replace(NAVIGATION, scenes=(homes,), routes=str(tmp_path / "vsi_bench.jsonl"), success_distance=0.5)
    task = make_navigation(env, 0)
    with caplog.at_level("INFO"):
        specs = task.specs(0, "test", groups=2)
    _, info = task.make_env().reset(seed=specs[0].seed, options=specs[0].options)
    assert (info["scene_id"], info["question_id"]) == ("home-1", "home-1_route_planning_0")
    assert specs[1].options["route"] == specs[0].options["route"]
    assert "3 of 4 routes can't be walked" in caplog.text
    assert "'blue desk' names no boxes" in caplog.text
    assert "its scene is not among env.scenes" in caplog.text
    with pytest.raises(DataError, match="not for training"):
        task.specs(0, "train", groups=1)
    with pytest.raises(ConfigError, match=r"give env\.scenes"):
        make_navigation(replace(env, scenes=()), 0)
    save_questions(route_rows("elsewhere"), tmp_path / "vsi_bench.jsonl")
    with pytest.raises(DataError, match="none of its 2 routes can be walked: its scene is not among"):
        task.specs(0, "test", groups=2)


def test_no_scene_of_the_benchmark_reaches_training_by_any_loader(benchmark, tmp_path, monkeypatch):
    save_scene(load_layout(benchmark, "41069025").scene, tmp_path / "copy")
    monkeypatch.setattr(simulator, "load_layout", lambda *_: pytest.fail("a layout was opened"))
    monkeypatch.setattr(simulator, "open_scan", lambda *_: pytest.fail("a scan was opened"))
    simulator.recorded_simulator.cache_clear()
    for scenes, split in itertools.product(((benchmark,), (str(tmp_path / "copy"),)), TRAINS):
        for share in (0.0, 0.5, 1.0):
            mixed = NavigationTask(replace(NAVIGATION, scenes=scenes, generated_share=share))
            with pytest.raises(ConfigError, match="train_on_test"):
                mixed.specs(0, split, groups=1)
            if share:
                with pytest.raises(ConfigError, match="train_on_test"):
                    mixed.pretraining_images(0, rooms=range(1), per_room=1)
    rows = [(question, f"{benchmark}#41069025") for question in route_rows("41069025")]
    for split in TRAINS:
        with pytest.raises(ConfigError, match="train_on_test"):
            SpatialVQATask(VQA, rows).specs(0, split, groups=1)
    # tokenizers, and without generated_share vision encoders too, are made from generated rooms whatever the scenes are
    for task in (NavigationTask(replace(NAVIGATION, scenes=(benchmark,))), SpatialVQATask(VQA, rows)):
        assert task.corpus()
        assert next(task.pretraining_images(0, rooms=range(1), per_room=1)).rgb.shape == (32, 32, 3)


@pytest.mark.parametrize("name", ["navigation", "spatial-vqa"])
def test_a_task_on_an_environment_server_refuses_the_benchmark_too(name, benchmark, serve_app):
    from lookact.envs.remote.app import LIMITS, create_app

    env = replace(NAVIGATION if name == "navigation" else VQA, scenes=(benchmark,))
    url = serve_app(create_app(lambda seed: make_task(env, seed), name=name, presets={}), LIMITS)
    there = make_task(find_task(url)(), 0)
    assert there.specs(0, "test", groups=1)
    # demonstrations for SFT, rollouts and collection all begin with specs
    for split in TRAINS:
        with pytest.raises(EnvError, match="a scene of VSI-Bench"):
            there.specs(0, split, groups=1)


@pytest.mark.parametrize("command", ["train", "collect"])
@pytest.mark.parametrize("recipe", ["nav-rloo", "vqa-ppo"])
def test_the_commands_refuse_the_benchmark_in_one_line(command, recipe, benchmark, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [command, recipe, "--preset", "debug", "--env.scenes", benchmark, "--out", str(tmp_path / "out")]
    assert main([*words, *(["--episodes", "1"] if command == "collect" else [])]) == 2
    error = capsys.readouterr().err
    assert "a scene of VSI-Bench, which is not for training" in error
    assert "Traceback" not in error


@pytest.mark.parametrize(("presets", "preflight"), [(rloo.PRESETS, rloo_preflight), (ppo.PRESETS, ppo_preflight)])
def test_training_in_the_benchmarks_rooms_is_refused_before_it_begins(presets, preflight, benchmark, tmp_path):
    cfg = presets["debug"]
    cfg = replace(cfg, env=replace(cfg.env, scenes=(benchmark,)))
    train, measure = Job("train", tmp_path), Job("eval", tmp_path)
    with pytest.raises(ConfigError, match="is about 41069025, a scene of VSI-Bench"):
        preflight(cfg, train)
    preflight(cfg, measure)
    preflight(replace(cfg, env=replace(cfg.env, train_on_test=True)), train)


def test_no_row_of_the_benchmark_or_of_its_derivatives_is_loaded_for_training(tmp_path):
    (question, *_) = route_rows("scene0644_00")
    for number, dataset in enumerate(("arkitscenes", "scannet", "ScanNetPP", "bboxes_arkitscenes", "bboxes_x/scannet")):
        path = tmp_path / f"rows{number}.jsonl"
        save_questions([replace(question, dataset=dataset)], path)
        with pytest.raises(DataError, match="not for training"):
            load_questions(path)
        assert len(load_questions(path, purpose="test")) == 1


LOADERS = {
    "load_scene", "load_layout", "load_scene_notes", "load_questions", "load_frames", "open_scan", "recorded_scene",
    "recorded_simulator",
}  # fmt: skip
CALLERS = {
    # defined in terms of one another, or drawn and checked on the command line
    "envs/rooms/arkit.py", "envs/rooms/notes.py", "envs/rooms/simulator.py", "cli/scenes.py",
    "envs/rooms/scan_cache.py",
    # environments: they walk where they are told to
    "envs/rooms/navigation.py", "envs/rooms/spatial_vqa.py",
    # images of the scenes that a task's training split names
    "envs/rooms/pretraining_images.py",
    # tasks, whose specs decide what is trained on
    "tasks/navigation.py", "tasks/spatial_vqa.py",
    # evaluation alone
    "vsi_bench/run.py", "recipes/ppo/evaluate.py",
}  # fmt: skip


def test_every_loader_is_walked_here():
    root = Path(lookact.__file__).parent
    found = Counter(
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in LOADERS
    )
    assert set(found) == CALLERS


@pytest.mark.slow
def test_an_episode_of_each_kind_runs_in_the_real_rooms():
    path = str(real_notes())
    task = make_navigation(replace(NAVIGATION, scenes=(path,)), 0)
    specs = task.specs(0, "test", groups=20)
    names = walked(task, specs)
    assert len(set(names)) == 20
    env = task.make_env()
    env.reset(seed=0, options=specs[3].options)
    env.step('{"rotation_angle_degrees": 30, "forward_meters": 0.5}')
    with pytest.raises(ConfigError, match="a scene of VSI-Bench"):
        task.specs(0, "train", groups=1)
    asking = make_spatial_vqa(replace(VQA, scenes=(path,), scene_ids=tuple(names[:5])), 0)
    assert {question.scene_name for question, _ in asking.rows} == set(names[:5])
    with pytest.raises(EnvError, match="option scene is 'x': 150 scenes are given"):
        env.env.reset(options={"scene": "x"})
