"""The attack scripts, as tests: everything they try is withstood."""

import attack_server
import attack_viewer


def wrong(outcomes):
    return [outcome for outcome in outcomes if outcome[1]]


def test_a_hostile_folder_is_withstood_by_the_viewer(tmp_path):
    assert wrong(attack_viewer.attack(tmp_path / "runs")) == []


def test_hostile_requests_are_withstood_by_the_server():
    assert wrong(attack_server.attack()) == []
