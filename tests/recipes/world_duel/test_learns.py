"""Learning for real, small: one run through all three phases, each of which does what it is there for."""

import json
from dataclasses import replace

import pytest

from lookact.config import to_mapping
from lookact.recipes.world_duel.config import (
    PRESETS,
    Adversarial,
    EnvConfig,
    Evaluation,
    ModelConfig,
    Student,
    Teacher,
    TokenizerConfig,
)
from lookact.recipes.world_duel.evaluate import LINES
from lookact.recipes.world_duel.train import main
from lookact.training.run import open_run

pytestmark = pytest.mark.slow
CONFIG = replace(
    PRESETS["debug"],
    env=EnvConfig(
        image_size=16, num_envs=16, steps_per_episode=24, distractors=0, background=False, light=False, clutter=False
    ),
    model=ModelConfig(width=32, layers=1, memory=32, ensemble_size=1),
    tokenizer=TokenizerConfig(
        codebook_size=32, latent_dim=8, width=16, scales=(1, 2), gradient_steps=150, batch_size=64
    ),
    teacher=Teacher(episodes=48, iterations=40, batch_size=16, lr=4e-3, warmup=5),
    student=Student(iterations=6),
    adversarial=Adversarial(iterations=3, episodes=48, world_model_updates=8, lr=2e-3),
    evaluation=Evaluation(per_phase=1, episodes=16, horizon=4, horizon_starts=2),
)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """The reports of all phases, and a line of metrics a step."""
    folder = tmp_path_factory.mktemp("duel") / "run"
    with open_run(folder, to_mapping(CONFIG), tensorboard=False) as run:
        reports = main(CONFIG, run)
    return reports, [json.loads(line) for line in (folder / LINES).read_text(encoding="utf-8").splitlines()]


def test_a_teacher_predicts_more_than_copying_does(learned):
    report = learned[0]["teacher"]
    assert report["token_accuracy"] > report["copy_accuracy"] + 0.05
    assert report["token_accuracy"] > report["majority_accuracy"] + 0.05
    # five tokens leave next to no room for a better picture one step ahead; four steps ahead copying falls behind
    assert report["open_loop"]["psnr"] > report["open_loop"]["copy_psnr"] + 0.5


def test_a_student_comes_to_earn_more_and_to_surprise_more(learned):
    earned = [line["reward/total"] for line in learned[1] if line["phase"] == "student"]
    assert sum(earned[-2:]) > sum(earned[:2]) + 0.1
    explorer = learned[0]["student"]["explorer"]
    assert explorer["student_error"] > explorer["matched_error"]
    assert explorer["student_cells"] > explorer["matched_cells"]


def test_a_duel_lowers_the_error_on_the_explorers_episodes_and_on_random_ones(learned):
    duel = learned[0]["adversarial"]["duel"]
    assert duel["frozen_explorer_error"] < duel["frozen_explorer_error_before"] - 0.03
    assert duel["random_error"] < duel["random_error_before"] - 0.01
