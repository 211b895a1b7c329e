"""The attack scripts, as tests: everything they try is withstood."""

import pytest

import attack_env_server
import attack_files
import attack_server
import attack_viewer
from lookact.extras import is_installed


def wrong(outcomes):
    return [outcome for outcome in outcomes if outcome[1]]


def test_a_hostile_folder_is_withstood_by_the_viewer(tmp_path):
    assert wrong(attack_viewer.attack(tmp_path / "runs")) == []


@pytest.mark.slow
def test_hostile_requests_are_withstood_by_the_server():
    assert wrong(attack_server.attack()) == []


@pytest.mark.slow
def test_hostile_files_are_read_or_refused_in_one_line(tmp_path):
    assert wrong(attack_files.attack(tmp_path / "files")) == []


@pytest.mark.slow
def test_hostile_requests_are_withstood_by_the_environment_server():
    assert wrong(attack_env_server.attack()) == []


@pytest.mark.slow
@pytest.mark.skipif(not is_installed("websockets"), reason="needs lookact[policy]")
def test_hostile_messages_are_withstood_by_the_policy_server(tmp_path):
    import attack_policy_server

    assert wrong(attack_policy_server.attack(tmp_path)) == []
