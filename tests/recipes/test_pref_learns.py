"""Whole runs of the presets that learn: minutes each."""

import json

import pytest

from lookact.cli import main
from lookact.recipes import pref_sac
from lookact.recipes.pref_judge import REPORT

NEEDED = 0.7
"""Share of what the true reward brings, above a random policy, that the learned one must bring."""


def trained(tmp_path, preset, seed, name, *words):
    """What a run came to."""
    line = [
        "train",
        "pref-sac",
        "--preset",
        preset,
        "--seed",
        str(seed),
        "--name",
        name,
        "--out",
        str(tmp_path),
        *words,
    ]
    assert main(line) == 0
    return json.loads((tmp_path / "pref-sac" / name / "result.json").read_text())


@pytest.mark.learn
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("preset", ["small", "arm"])
def test_labels_of_a_served_vlm_teach_nearly_as_well_as_the_true_reward(tmp_path, preset, seed):
    learned = trained(tmp_path, preset, seed, "learned")
    true = trained(tmp_path, preset, seed, "true", "--reward", "true")
    random = learned["random"]["episode_return"]
    gained = (learned["agent"]["episode_return"] - random) / (true["agent"]["episode_return"] - random)
    assert gained >= NEEDED
    assert learned["judge"]["accuracy"] >= 0.85
    assert (tmp_path / "pref-sac" / "learned" / "judge" / REPORT).exists()


def test_the_presets_that_learn_ask_a_judge_that_only_sees_pictures():
    for preset in ("small", "arm"):
        assert pref_sac.PRESETS[preset].judge.kind == "embedded"
        assert pref_sac.PRESETS[preset].reward == "learned"
