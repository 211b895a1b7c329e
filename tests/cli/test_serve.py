import logging
import socket

import numpy as np
import pytest

from lookact.cli import main
from lookact.cli.parser import find_command
from lookact.cli.serve import load_engine, log_replies
from lookact.judges.server.batching import Message, Prompt, Reply
from lookact.models.vlm.families.qwen import pixel_budget
from lookact.models.vlm.tiny import make_tiny


@pytest.fixture
def clean(monkeypatch):
    for name in ("SERVER_HOST", "SERVER_PORT", "SERVER_TOKEN", "LOCAL_MODEL_PATH"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def arguments(*words):
    return find_command("serve")[1].parse_args(words)


def test_the_server_stays_on_this_machine_unless_told_otherwise(clean):
    assert (arguments().host, arguments().port, arguments().token) == ("127.0.0.1", "8000", "")


def test_the_environment_gives_defaults_and_flags_win(clean):
    clean.setenv("SERVER_HOST", "0.0.0.0")
    clean.setenv("SERVER_PORT", "8001")
    clean.setenv("SERVER_TOKEN", "secret")
    clean.setenv("LOCAL_MODEL_PATH", "snapshots/qwen")
    given = arguments()
    assert (given.host, given.port, given.token, given.model) == ("0.0.0.0", "8001", "secret", "snapshots/qwen")
    assert arguments("--port", "9000").port == "9000"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "no model to serve: give --model, or set LOCAL_MODEL_PATH"),
        (["--model", "nowhere", "--port", "0"], "no checkpoint at nowhere"),
        (["--model", "x", "--port", "eighty"], "port eighty is not a number"),
        (["--model", "x", "--port", "70000"], "port 70000 is not a number"),
        (["--model", "x", "--batch", "0"], "at least 1"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(clean, capsys, words, told):
    assert main(["serve", *words]) == 2
    complaint = capsys.readouterr().err
    assert told in complaint
    assert complaint.count("\n") == 1


def test_a_port_in_use_is_found_before_the_model_is_loaded(clean, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", "--model", "nowhere", "--port", str(taken.getsockname()[1])]) == 2
    assert "another program uses it" in capsys.readouterr().err


def test_the_pixel_budget_is_in_tokens_of_32_by_32_pixels(clean, tmp_path):
    folder = make_tiny(tmp_path / "tiny", corpus=["hello"] * 9)
    engine = load_engine(arguments("--model", str(folder), "--min-image-tokens", "2", "--max-image-tokens", "6"))
    assert pixel_budget(engine.chat.image_processor) == (2 * 32 * 32, 6 * 32 * 32)
    assert engine.max_context == 8192


def test_verbose_logs_what_was_asked_and_said(caplog):
    def generate(prompts, dropped):
        yield 0, Reply("The drawer is open.")

    prompt = Prompt((Message("user", ("Look:", np.zeros((4, 6, 3), np.uint8))),), max_tokens=1)
    with caplog.at_level(logging.INFO, "lookact"):
        assert list(log_replies(generate)([prompt], lambda index: False)) == [(0, Reply("The drawer is open."))]
    assert caplog.messages == ["asked: Look: [image 6x4]\nsaid: The drawer is open."]
