"""The attack scripts, as tests: everything they try is withstood."""

import attack_viewer


def wrong(outcomes):
    return [outcome for outcome in outcomes if outcome[1]]


def test_a_hostile_folder_is_withstood_by_the_viewer(tmp_path):
    assert wrong(attack_viewer.attack(tmp_path / "runs")) == []
