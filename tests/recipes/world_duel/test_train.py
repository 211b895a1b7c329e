import json
from dataclasses import replace

import pytest
from safetensors.torch import load_file

from lookact.config import check, to_mapping
from lookact.data.episode_store import EpisodeStore
from lookact.errors import ConfigError, DataError
from lookact.recipes.world_duel import train as world_duel
from lookact.recipes.world_duel.config import PRESETS, EnvConfig, due_after, is_due, phase_at, planned
from lookact.recipes.world_duel.train import collect, evaluate, main
from lookact.training.run import open_run

DEBUG = PRESETS["debug"]
SHORT = replace(
    DEBUG,
    env=EnvConfig(name="memory_curtain", num_envs=2, steps_per_episode=6),
    teacher=replace(DEBUG.teacher, episodes=4, bptt_length=3, batch_size=2),
    evaluation=replace(DEBUG.evaluation, per_phase=2, episodes=2, horizon=2, horizon_starts=1),
)


def metrics_of(folder, name="metrics.jsonl"):
    lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.startswith("time/")} for line in lines]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_within_their_bounds(name):
    cfg = check(PRESETS[name])
    assert cfg.env.image_size == 8 * cfg.tokenizer.scales[-1]


def test_phases_follow_one_another():
    assert [phase_at(DEBUG, step) for step in (1, 2, 3, 5)] == [
        ("teacher", 1), ("teacher", 2), ("student", 1), ("adversarial", 1)
    ]  # fmt: skip
    assert planned(replace(DEBUG, phase="student")) == {"student": 2}


@pytest.mark.parametrize(("times", "after"), [(1, [7]), (2, [4, 7]), (7, list(range(1, 8))), (9, list(range(1, 8)))])
def test_evaluations_are_spread_over_a_phase_and_the_last_is_at_its_end(times, after):
    assert [number for number in range(1, 8) if is_due(number, 7, times)] == after


def test_checkpoints_pictures_and_videos_have_intervals_of_their_own():
    intervals = replace(DEBUG.evaluation, checkpoint_every=2, sample_every=3, video_every=4)
    teacher = replace(DEBUG.teacher, iterations=7)
    cfg = replace(DEBUG, phase="teacher", teacher=teacher, evaluation=intervals)
    due = {step: due_after(cfg, step) for step in range(1, 8)}
    assert [step for step in due if due[step].evaluation] == [7]
    assert [step for step in due if due[step].checkpoint] == [2, 4, 6, 7]
    assert [step for step in due if due[step].sample] == [3, 6, 7]
    assert [step for step in due if due[step].video] == [4, 7]
    # unless told, all come with the evaluations
    together = replace(cfg, evaluation=replace(DEBUG.evaluation, per_phase=2))
    steps = [step for step in range(1, 8) if due_after(together, step).evaluation]
    assert steps == [4, 7]
    assert all([step for step in range(1, 8) if getattr(due_after(together, step), part)] == steps
               for part in ("checkpoint", "sample", "video"))  # fmt: skip


def test_a_run_keeps_each_at_its_interval(train, tmp_path):
    intervals = replace(SHORT.evaluation, per_phase=1, checkpoint_every=1, sample_every=2, video_every=3)
    cfg = replace(SHORT, phase="teacher", teacher=replace(SHORT.teacher, iterations=4), evaluation=intervals)
    train(main, cfg)
    run = tmp_path / "run"
    names = sorted(path.name for pattern in ("checkpoint-*", "samples/e*", "videos/*") for path in run.glob(pattern))
    assert names == [
        *(f"checkpoint-{step}" for step in (1, 2, 3, 4)),
        *("episode_2.png", "episode_3.mp4", "episode_4.mp4", "episode_4.png"),
    ]
    assert [path.name for path in (run / "episodes").glob("step-*")] == ["step-000004-teacher"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"phase": "student"}, "give teacher_path"),
        ({"phase": "adversarial", "teacher_path": "."}, "give student_path"),
    ],
)
def test_a_phase_without_what_it_needs_is_refused(train, changes, reason):
    with pytest.raises(ConfigError, match=reason):
        train(main, replace(SHORT, **changes))


@pytest.mark.slow
def test_the_debug_preset_runs_from_end_to_end(train, tmp_path):
    result = train(main, DEBUG)
    assert set(result) == {"teacher", "student", "adversarial"}
    assert {"token_accuracy", "psnr", "copy_accuracy", "majority_accuracy", "open_loop", "no_memory", "ci"} <= result[
        "teacher"
    ].keys()
    assert {
        "student_error",
        "random_error",
        "random_error_ratio",
        "matched_image_error_ratio",
        "student_cells",
    } <= result["student"]["explorer"].keys()
    run = tmp_path / "run"
    for file in ("checkpoint-6/model.safetensors", "checkpoint-6/student/model.safetensors",
                 "samples/episode_2.png", "videos/episode_6.mp4", "warm_start/model.safetensors"):  # fmt: skip
        assert (run / file).stat().st_size > 0
    lines = metrics_of(run, "episode_metrics.jsonl")
    # gradients in every phase; the explorer and the world model each take steps of their own in the last
    assert all(line["optim/grad_norm"] > 0 for line in lines)
    assert all(line["optim/steps"] >= 1 for line in lines if line["phase"] != "teacher")
    assert all(line["loss/world_model"] > 0 for line in lines if line["phase"] != "student")
    assert [line["phase"] for line in metrics_of(run, "episode_metrics.jsonl")] == ["teacher"] * 2 + ["student"] * 2 + [
        "adversarial"
    ] * 2
    measured = evaluate(DEBUG, checkpoint=run / "checkpoint-6", episodes=4, greedy=False, dummy=False, folder=tmp_path)
    assert {"token_accuracy", "psnr", "coverage"} <= measured.keys()
    assert {"token_accuracy", "psnr", "coverage"} <= measured["ci"].keys()
    assert {path.name for path in (run / "episodes").glob("step-*")} == {
        *("step-000002-teacher", "step-000004-student", "step-000006-adversarial")
    }
    for folder in (run / "episodes/step-000006-adversarial", tmp_path / "episodes"):
        episode = next(EpisodeStore(folder).episodes())
        cameras = [list(turn.observation.images) for turn in episode.turns]
        assert cameras == [["wrist", "head"]] + [["wrist", "head", "predicted"]] * 7
        # a fresh world model is surprised
        assert episode.total_reward > 0
        assert (episode.id, episode.truncated) == ("explorer-0000", True)
    found = collect(DEBUG, checkpoint=run / "checkpoint-6", episodes=4, out=tmp_path / "found")
    assert (found["episodes"], found["collected"]) == (4, 4)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    with open_run(folder, to_mapping(SHORT), tensorboard=False) as run:
        main(SHORT, run)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("killed_at", [2, 4, 6], ids=["teacher", "student", "adversarial"])
def test_a_run_killed_in_any_phase_and_resumed_ends_as_an_unbroken_one(
    train, tmp_path, monkeypatch, unbroken, killed_at, kept_in
):
    def kill(*parts, work=world_duel.report_on):
        if parts[-1] == killed_at:
            raise KeyboardInterrupt
        return work(*parts)

    with monkeypatch.context() as patched:
        patched.setattr(world_duel, "report_on", kill)
        with pytest.raises(KeyboardInterrupt):
            train(main, SHORT, "killed")
    train(main, SHORT, "killed", resume=True)
    assert kept_in(tmp_path / "killed") == kept_in(unbroken)
    for name in ("metrics.jsonl", "episode_metrics.jsonl"):
        for one, other in zip(metrics_of(tmp_path / "killed", name), metrics_of(unbroken, name), strict=True):
            assert one == other
    for file in ("model", "student/model"):
        one, other = (
            load_file(folder / f"checkpoint-6/{file}.safetensors") for folder in (tmp_path / "killed", unbroken)
        )
        assert all(one[key].equal(other[key]) for key in one)


@pytest.mark.slow
def test_phases_by_themselves_take_what_the_others_left(train, tmp_path):
    train(main, replace(SHORT, phase="teacher"), "teacher")
    teacher = str(tmp_path / "teacher" / "checkpoint-2")
    train(main, replace(SHORT, phase="student", teacher_path=teacher), "student")
    student = str(tmp_path / "student" / "checkpoint-2")
    frozen, kept = (load_file(f"{folder}/model.safetensors") for folder in (teacher, student))
    assert all(frozen[key].equal(kept[key]) for key in frozen)
    cfg = replace(SHORT, phase="adversarial", teacher_path=teacher, student_path=student)
    result = train(main, cfg, "duel")
    assert set(result) == {"adversarial"}
    moved = load_file(tmp_path / "duel" / "checkpoint-2" / "model.safetensors")
    assert not moved["pos_query"].equal(frozen["pos_query"])
    assert moved["vq.codebooks"].equal(frozen["vq.codebooks"])


@pytest.mark.slow
def test_adapters_are_written_beside_the_model(train, tmp_path):
    cfg = replace(SHORT, phase="teacher", model=replace(SHORT.model, lora_rank=2))
    train(main, cfg)
    adapters = load_file(tmp_path / "run" / "checkpoint-2" / "peft_adapter" / "adapter_model.safetensors")
    assert any(x.abs().max() > 0 for name, x in adapters.items() if "lora_B" in name)


def test_a_missing_checkpoint_is_named(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        evaluate(SHORT, checkpoint=tmp_path / "none", episodes=2, greedy=False, dummy=False, folder=tmp_path)


def test_the_dummy_guesses_and_copies(tmp_path):
    report = evaluate(SHORT, checkpoint=None, episodes=2, greedy=False, dummy=True, folder=tmp_path)
    assert report["token_accuracy"] == 1 / 16
    assert report["psnr"] > 0
    first, second = EpisodeStore(tmp_path / "episodes").episodes()
    assert (first.total_reward, len(first.turns)) == (0.0, SHORT.env.steps_per_episode)
    assert (first.turns[0].decision.action != second.turns[0].decision.action).any()
