"""SIGTERM ends a run with a checkpoint of the step under way."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch import nn

from lookact.data.jsonl import read_objects
from lookact.errors import Terminated
from lookact.training.checkpoint import latest_checkpoint
from lookact.training.run import open_run

TOTAL = 8


def go(folder, *, during=None, work=lambda: None, **options):
    """Count steps in a weight, saving after the last one only; SIGTERM comes in the step `during`."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    parts = {"weights": {"model": model}, "state": {}}
    with open_run(folder, {"seed": 1}, tensorboard=False, **options) as run:
        run.restore(**parts)
        for step in run.steps(TOTAL):
            if step == during:
                os.kill(os.getpid(), signal.SIGTERM)
                work()
            with torch.no_grad():
                model.weight += 1
            run.log({"loss/total": model.weight.item()}, step)
            if step == TOTAL:
                run.save(step, **parts, metrics={})
    return model.weight.item()


def test_the_step_is_finished_saved_and_gone_on_from(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated) as stop:
        go(tmp_path, during=3)
    assert stop.value.code == 143
    assert latest_checkpoint(tmp_path).name == "checkpoint-3"
    assert signal.getsignal(signal.SIGTERM) == before
    assert go(tmp_path, auto_resume=True) == TOTAL
    assert [row["step"] for row in read_objects(tmp_path / "metrics.jsonl")[0]] == list(range(1, TOTAL + 1))


def test_a_step_that_outlasts_the_grace_period_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOKACT_GRACE", "0.2")
    begun = time.monotonic()
    with pytest.raises(Terminated):
        go(tmp_path, during=3, work=lambda: time.sleep(60))
    assert time.monotonic() - begun < 30
    assert latest_checkpoint(tmp_path) is None


def test_a_second_signal_does_not_wait(tmp_path):
    with pytest.raises(Terminated):
        go(tmp_path, during=3, work=lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert latest_checkpoint(tmp_path) is None


def test_before_the_first_step_a_run_ends_at_once(tmp_path):
    with pytest.raises(Terminated), open_run(tmp_path, {"seed": 1}, tensorboard=False):
        signal.raise_signal(signal.SIGTERM)


def test_a_worker_forked_from_a_run_dies_of_it(tmp_path):
    with open_run(tmp_path, {"seed": 1}, tensorboard=False):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        time.sleep(0.1)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_command_leaves_with_143_and_goes_on(tmp_path, processes):
    command = [sys.executable, "-m", "lookact", "train", "nav-rloo", "--preset", "debug", "--processes", processes]
    command += ["--out", str(tmp_path), "--name", "a", "--evaluation.every", "1000", "--learn.updates", "4"]
    folder = tmp_path / "nav-rloo/a"
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not ((folder / "metrics.jsonl").exists() and (folder / "metrics.jsonl").read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=120)[1]
    assert process.returncode == 143
    assert "ended by SIGTERM; train continues" in told
    assert latest_checkpoint(folder) is not None
    assert subprocess.run([*command, "--auto-resume"], capture_output=True, check=False).returncode == 0
    assert len(read_objects(folder / "metrics.jsonl")[0]) == 4
