from dataclasses import replace

import pytest

from lookact.data.episode_store import MANIFEST, EpisodeStore
from lookact.envs.rooms.arkit import save_scene
from lookact.envs.rooms.generate import RoomStyle, generate_room
from lookact.envs.rooms.questions import ask
from lookact.recipes.ppo.evaluate import claim, evaluate
from question_files import save_questions


def run_dummy(cfg, folder, questions):
    return evaluate(cfg, checkpoint=None, episodes=questions, greedy=False, dummy=True, folder=folder)


def test_the_random_policy_leaves_episodes_and_predictions(vqa_config, tmp_path):
    result = run_dummy(vqa_config, tmp_path, 2)
    assert {"score", "per_type", "ci"} <= result.keys()
    assert result["ci"].keys() >= {"score", "per_type"}
    assert result["questions"] == 2
    kept = list(EpisodeStore(tmp_path / "episodes").episodes())
    assert len(kept) == 2
    assert all(episode.turns[-1].decision.action.startswith('{"answer"') for episode in kept)
    assert all(episode.floor_map is not None and episode.last.depth is None for episode in kept)
    assert len((tmp_path / "predictions.jsonl").read_text().splitlines()) == 2


def test_finished_questions_are_skipped_and_the_end_is_the_same(vqa_config, tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    whole = run_dummy(vqa_config, tmp_path / "whole", 5)
    run_dummy(vqa_config, tmp_path / "broken", 2)
    file = tmp_path / "broken" / "predictions.jsonl"
    # a kill in the middle of a line
    file.write_text(file.read_text() + '{"episode_id": "test-0000')
    first = (tmp_path / "broken/episodes/test-00000-0000-00_tensors.pt").stat().st_mtime_ns
    assert run_dummy(vqa_config, tmp_path / "broken", 5) == whole
    assert file.read_text() == (tmp_path / "whole" / "predictions.jsonl").read_text()
    assert (tmp_path / "broken/episodes/test-00000-0000-00_tensors.pt").stat().st_mtime_ns == first
    manifests = [(tmp_path / name / "episodes" / MANIFEST).read_text() for name in ("whole", "broken")]
    assert manifests[0] == manifests[1]
    # nothing left to ask
    assert run_dummy(vqa_config, tmp_path / "broken", 5) == whole


def test_anothers_predictions_are_set_aside_and_taken_back(tmp_path):
    path = claim(tmp_path, {"who": "first"})
    path.write_text("1\n")
    (tmp_path / "episodes").mkdir()
    assert not claim(tmp_path, {"who": "second"}).exists()
    path.write_text("2\n")
    assert not (tmp_path / "episodes").exists()
    assert claim(tmp_path, {"who": "first"}).read_text() == "1\n"
    assert (tmp_path / "episodes").exists()
    assert claim(tmp_path, {"who": "second"}).read_text() == "2\n"


@pytest.fixture
def benchmark(vqa_config, tmp_path):
    """VSI-Bench rows about a scan on disk, with two recorded frames."""
    scene = generate_room(5, RoomStyle(objects=(5, 6)))
    save_scene(scene, tmp_path / "41048190", frames=2)
    kinds = ("room_size_estimation", "object_size_estimation")
    rows = [
        replace(question, id=number, dataset="arkitscenes", scene_name="41048190")
        for number, question in enumerate(ask(scene, seed=0, types=kinds, per_type=1))
    ]
    rows.append(replace(rows[0], id=2, dataset="scannet", scene_name="scene0000_00"))
    save_questions(rows, tmp_path / "test-00000-of-00001.parquet")
    evaluation = replace(
        vqa_config.evaluation,
        question_file=str(tmp_path / "test-00000-of-00001.parquet"),
        scenes=(str(tmp_path / "41048190"),),
    )
    return replace(vqa_config, evaluation=evaluation)


def test_real_rows_are_answered_and_those_of_other_scenes_counted(benchmark, vqa_model, tmp_path):
    (tmp_path / "out").mkdir()
    result = evaluate(benchmark, checkpoint=vqa_model, episodes=10, greedy=True, dummy=False, folder=tmp_path / "out")
    assert (result["questions"], result["failed"], result["skipped"]) == (2, 0, 1)
    assert sorted(result["per_type"]) == ["object_size_estimation", "room_size_estimation"]
    first, second = EpisodeStore(tmp_path / "out/episodes").episodes()
    assert (first.id, second.id) == ("arkitscenes-0", "arkitscenes-1")
    assert first.turns[0].info["dataset"] == "arkitscenes"
    assert len(first.turns) == benchmark.env.max_turns
    assert first.floor_map is not None
