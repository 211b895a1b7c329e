"""The command that serves a task's environments."""

import pytest

from lookact.cli import main
from lookact.cli.env_server import task_settings
from lookact.cli.parser import find_command


def test_settings_of_the_task_are_given_as_runs_name_them():
    assert task_settings("frozen-lake", ["--env.size", "6", "--env.slippery"]).size == 6
    arguments = find_command("env-server")[1].parse_args(["--task", "navigation"])
    assert (arguments.host, arguments.port, arguments.token, arguments.max_sessions) == ("127.0.0.1", "8100", "", 256)


def test_the_environment_gives_the_defaults(monkeypatch):
    monkeypatch.setenv("ENV_SERVER_PORT", "8123")
    monkeypatch.setenv("ENV_SERVER_TOKEN", "s3cret")
    arguments = find_command("env-server")[1].parse_args(["--task", "navigation"])
    assert (arguments.port, arguments.token) == ("8123", "s3cret")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--task"),
        (["--task", "frozen-lak"], "did you mean frozen-lake?"),
        (["--task", "frozen-lake", "--env.siz", "6"], "size"),
        (["--task", "frozen-lake", "--env.size", "1"], "at least 2"),
        (["--task", "frozen-lake", "--max-sessions", "0"], "at least 1"),
        (["--task", "frozen-lake", "--port", "99999"], "port"),
        (["--task", "frozen-lake", "--host", "203.0.113.1", "--port", "0"], "cannot serve on"),
    ],
)
def test_a_mistake_is_one_line(words, told, capsys):
    assert main(["env-server", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
