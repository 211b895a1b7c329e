import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from lookact.cli import main
from lookact.cli.parser import find_command
from lookact.cli.view import PORT, take_port
from lookact.errors import ConfigError


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "runs/nav-rloo/a"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("seed: 0\n")
    (folder / "metrics.jsonl").write_text('{"step": 1, "eval/score": 0.5}\n')
    return tmp_path / "runs"


def test_without_words_it_shows_the_runs():
    arguments = find_command("view")[1].parse_args([])
    assert (str(arguments.folder), arguments.port, arguments.open, arguments.out) == ("runs", None, False, None)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere"], "nowhere is no folder: train first (lookact train nav-rloo --preset debug), or name another"),
        (["runs", "--port", "70000"], "port 70000 is not a number from 0 to 65535: set --port"),
        (["runs", "--tokenizer", "none"], "no tokenizer at none: give --tokenizer a checkpoint folder"),
        (["runs", "--max-mb", "0"], "'0' is not a whole number of at least 1"),
        (["runs/nav-rloo/a/empty", "--out", "x.html"], "empty holds no run and no episodes"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run_folder, capsys, words, told):
    (run_folder / "nav-rloo/a/empty").mkdir()
    assert main(["view", *words]) == 2
    complaint = capsys.readouterr().err
    assert told in complaint
    assert complaint.count("\n") == 1


def test_a_taken_port_is_told_where_it_was_asked_for_and_passed_over_where_not():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="another program uses it"):
            take_port(taken.getsockname()[1])
    first = take_port(None)
    first.listen()
    second = take_port(None)
    assert PORT <= first.getsockname()[1] < second.getsockname()[1]
    first.close()
    second.close()


def test_missing_packages_are_one_line_with_the_remedy(run_folder, capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "fastapi" else found(name))
    assert main(["view", "runs"]) == 2
    assert "lookact view needs fastapi and uvicorn: pip install 'lookact[serve]'" in capsys.readouterr().err
    # a file needs no server
    assert main(["view", "runs", "--out", "page.html"]) == 0


def test_one_file_is_written_and_what_was_left_out_is_said(run_folder, tmp_path, capsys):
    (run_folder / "nav-rloo/a/big.png").write_bytes(b"x" * (2 << 20))
    assert main(["view", "runs", "--out", "new/page.html", "--max-mb", "1"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("wrote new/page.html, 0.1 MB; left out to stay below 1 MB: 1 picture")
    assert (tmp_path / "new/page.html").read_text().startswith("<!doctype html>")


def test_it_serves_until_interrupted_opens_the_browser_and_loads_no_torch(run_folder, tmp_path):
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f"#!/bin/sh\necho $1 > {opened}.part && mv {opened}.part {opened}\n")
    browser.chmod(0o755)
    code = "import sys; from lookact.cli import main; main(sys.argv[1:]); print('torch' in sys.modules)"
    command = [sys.executable, "-c", code, "view", str(run_folder), "--port", "0", "--open"]
    environment = os.environ | {"BROWSER": str(browser)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    line = server.stdout.readline()
    assert line.startswith(f"showing {run_folder} on http://127.0.0.1:")
    client = httpx.Client(transport=httpx.HTTPTransport(retries=10), timeout=30)
    runs = client.get(f"{line.split()[3]}/api/runs").json()["runs"]
    assert [run["place"] for run in runs] == ["nav-rloo/a"]
    while not opened.exists() and server.poll() is None:
        time.sleep(0.02)
    assert opened.read_text() == f"{line.split()[3]}\n"
    server.send_signal(signal.SIGINT)
    out, err = server.communicate(timeout=30)
    assert (server.returncode, out, err) == (0, "False\n", "")
