import numpy as np
import pytest
import torch

from lookact.algorithms.control_episodes import control_turn
from lookact.data.lerobot.video import read_video
from lookact.envs.tabletop.randomise import instruction_corpus
from lookact.models.vla.policy import VLA
from lookact.recipes.vla_ppo.config import EnvConfig, Evaluation, Model, Text, Vision
from lookact.recipes.vla_ppo.evaluate import (
    OOD_SHIFTS,
    EpisodeResult,
    measure,
    named,
    replacement,
    run_episodes,
    summarise,
    write_videos,
)
from lookact.recipes.vla_ppo.task import open_policy, table_maker
from lookact.training.evaluation import KEPT, flat_metrics
from lookact.types import Observation

SMALL = EnvConfig(task="reach", image_size=16, max_steps=6)
HOW = {"shift": "none", "seed": 0, "split": "test", "workers": 1, "greedy": False}


@pytest.fixture(scope="module")
def policy() -> VLA:
    vision = Vision(image_size=16, hidden=32, layers=1, pool_queries=2)
    return open_policy(Model(vision=vision, text=Text(hidden=32), width=16, layers=1, heads=2), SMALL, seed=0)


def told(results: list[EpisodeResult]) -> list[tuple[int, bool, int, float]]:
    return [(result.number, result.success, result.steps, result.reward) for result in results]


@pytest.mark.slow
def test_the_same_episodes_however_many_stand_side_by_side(policy):
    together, in_turn = (run_episodes(policy, SMALL, episodes=5, num_envs=rows, **HOW) for rows in (5, 2))
    assert [result.number for result in together] == [0, 1, 2, 3, 4]
    for a, b in zip(told(together), told(in_turn)):
        assert a == pytest.approx(b, abs=1e-4)


@pytest.mark.slow
def test_greedy_needs_no_luck_and_sampling_follows_the_seed(policy):
    how = {**HOW, "episodes": 2, "num_envs": 2}
    first, again, greedy = (
        told(run_episodes(policy, SMALL, **{**how, "greedy": greedy})) for greedy in (False, False, True)
    )
    assert first == again
    assert first != greedy


@pytest.mark.slow
def test_random_actions_need_no_policy():
    results = run_episodes(None, SMALL, episodes=3, num_envs=3, **HOW)
    assert len(results) == 3
    assert len({result.reward for result in results}) == 3


def test_rates_come_with_their_intervals():
    results = [EpisodeResult(n, success=n < 3, steps=10 + n, reward=0.5) for n in range(4)]
    report = summarise(results)
    assert report["success_rate"] == 0.75
    assert report["steps"] == 11.5
    assert report["episodes"] == 4
    # Wilson's interval of 3 in 4
    assert report["ci"]["success_rate"] == pytest.approx([0.3006, 0.9544], abs=1e-3)
    assert report["ci"]["return"] == [0.5, 0.5]
    assert flat_metrics(report)["eval/success_rate"] == 0.75


def test_an_episode_whose_worker_died_counts_as_failed_and_is_counted():
    results = [EpisodeResult(0, success=True, steps=3, reward=1.0), EpisodeResult(1, steps=2, error="the worker died")]
    report = summarise(results)
    assert report["success_rate"] == 0.5
    assert report["failed"] == 1


@pytest.mark.slow
def test_every_way_out_of_distribution_is_measured_and_recorded(policy, tmp_path):
    evaluation = Evaluation(num_envs=2, workers=1, videos=1)
    report = measure(
        policy, SMALL, evaluation, seed=0, split="test", episodes=2, ood_episodes=2, greedy=True, videos=tmp_path
    )
    assert set(report["ood"]) == set(report["ci"]["ood"]) == set(OOD_SHIFTS)
    for shift, rate in report["ood"].items():
        low, high = report["ci"]["ood"][shift]
        assert low <= rate <= high
        assert f"eval/ood_{shift}" in flat_metrics(report)
    # nobody asked for episodes
    assert not (tmp_path / "episodes").exists()
    videos = sorted(path.name.rsplit("-", 1)[0] for path in tmp_path.glob("*.mp4"))
    assert videos == sorted(f"{name}-000" for name in ("in_distribution", *OOD_SHIFTS))


@pytest.mark.slow
def test_steps_are_kept_as_they_were_lived(policy, tmp_path):
    found = {}
    how = {"seed": 0, "split": "test", "greedy": False, "keep": lambda kind, kept: found.update({kind: list(kept)})}
    evaluation = Evaluation(num_envs=2, workers=1)
    measure(policy, SMALL, evaluation, episodes=KEPT + 1, **how)
    kept = found.pop("in_distribution")
    assert not found
    lived = run_episodes(policy, SMALL, episodes=KEPT + 1, num_envs=2, **HOW)
    assert [episode.id for episode in kept] == [f"test-in_distribution-{number:04d}" for number in range(KEPT)]
    for episode, result in zip(kept, lived):
        assert episode.total_reward == pytest.approx(result.reward, abs=1e-5)
        assert (len(episode.turns), episode.turns[-1].info["success"]) == (result.steps, result.success)
        assert episode.terminated or episode.truncated
    # what is seen after a step is what the next one is decided on
    table, first = table_maker(SMALL)(), kept[0]
    shown, _ = table.reset(seed=first.seed)
    for turn in first.turns:
        assert np.array_equal(turn.observation.images["head"], shown["head"])
        assert turn.observation.text == shown["instruction"]
        shown, *_ = table.step(turn.decision.action)
    assert np.array_equal(first.last.images["head"], shown["head"])


def test_a_film_shows_both_cameras_side_by_side(tmp_path):
    views = [{name: np.full((16, 16, 3), shade, np.uint8) for name in ("head", "wrist")} for shade in (0, 120, 250)]
    turns = [control_turn(Observation(images=view), np.zeros(2, np.float32), 0.0) for view in views]
    write_videos([EpisodeResult(7, success=True, turns=turns), EpisodeResult(8)], tmp_path, "seen", fps=10)
    (video,) = tmp_path.iterdir()
    assert video.name == "seen-007-done.mp4"
    shown = list(read_video(video))
    assert [frame.shape for frame in shown] == [(64, 128, 3)] * 3
    assert [round(float(frame.mean()), -1) for frame in shown] == [0, 120, 250]


def test_another_instruction_is_never_the_true_one_and_the_same_for_an_episode():
    corpus = sorted(set(instruction_corpus("pick_place")))
    wrong, empty = (replacement(EnvConfig(), kind, 3) for kind in ("wrong", "empty"))
    assert replacement(EnvConfig(), "true", 3) is None
    assert {empty(number, corpus[0]) for number in range(5)} == {""}
    told = [wrong(number, corpus[7]) for number in range(40)]
    assert told == [wrong(number, corpus[7]) for number in range(40)]
    assert len(set(told)) > 20
    assert set(told) <= set(corpus)
    # another wording of the same is not wrong
    assert named(corpus[7]) not in [named(text) for text in told]
    assert named("Put the red cube on the blue stand.") == {("red", "cube"), ("blue", "stand")}


@pytest.mark.slow
def test_success_is_told_for_an_empty_and_a_wrong_instruction(policy):
    heard = []
    hook = policy.text_encoder.register_forward_pre_hook(lambda module, inputs: heard.append(inputs[0].clone()))
    evaluation = Evaluation(num_envs=2, workers=1)
    how = {"seed": 0, "split": "test", "episodes": 2, "greedy": True}
    report = measure(policy, SMALL, evaluation, instruction_episodes=2, **how)
    hook.remove()
    assert set(report["instruction"]) == set(report["ci"]["instruction"]) == {"empty", "wrong"}
    assert {"eval/instruction_empty", "eval/instruction_wrong"} <= set(flat_metrics(report))
    # three times two episodes of six steps: the true words, none, and others
    true, empty, wrong = (torch.stack(heard[start : start + 6]) for start in (0, 6, 12))
    assert torch.equal(empty[0, 0], policy.tokenize([""])[0])
    assert not (true == wrong).all(dim=-1).any()
