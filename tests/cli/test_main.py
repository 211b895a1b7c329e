import subprocess
import sys

import pytest

from lookact.cli import main
from lookact.cli.parser import COMMANDS, find_command


def failure(capsys, *words) -> tuple[int, str]:
    """The exit code and the one line of a command that fails."""
    code = main(words)
    error = capsys.readouterr().err
    assert error.startswith("lookact: ")
    assert error.endswith("\n")
    assert error.count("\n") == 1
    return code, error.removeprefix("lookact: ").rstrip("\n")


def test_help_lists_every_command(capsys):
    for words in ([], ["--help"], ["-h"], ["help"]):
        assert main(words) == 0
        text = capsys.readouterr().out
        assert all(f"\n    {name} " in text.replace("\n", " \n") for name in COMMANDS)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("lookact 0.")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_examples(name, capsys):
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert "examples:\n" in text
    assert f"usage: lookact {name}" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_in_help_name_their_own_command(name):
    assert all(example.startswith(f"lookact {name}") for example in find_command(name)[0].EXAMPLES)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["trian", "toy"], "unknown command trian: did you mean train?"),
        (["train", "tyo"], "unknown recipe tyo: did you mean toy?"),
        (["train"], "no recipe named: choose one of toy"),
        (["train", "toy", "--preset", "smal"], "unknown preset smal of toy: did you mean small?"),
        (["train", "toy", "--auto-resum"], "unknown option --auto-resum: did you mean --auto-resume?"),
        (["train", "toy", "--optim.lrr", "1"], "unknown setting optim.lrr: did you mean optim.lr?"),
        (["train", "toy", "--optim.lr", "fast"], "optim.lr = 'fast': expected a number"),
        (["train", "toy", "--group_size", "1"], "group_size = 1: set it to at least 2"),
        (["train", "toy", "--optim.lr", "-1e-4"], "optim.lr = -0.0001: set it above 0"),
        (["train", "toy", "--scenes", "no/such"], "scenes = 'no/such': no such file or folder; check the path"),
        (["train", "toy", "--seed", "x"], "seed = 'x': expected a whole number"),
        (["train", "toy", "--lr", "1"], "unknown setting lr: did you mean optim.lr?"),
        (["train", "toy", "--name", "a/b"], "--name a/b: a name is that of one folder; --out says where it lies"),
        (["train", "toy", "--name", ".."], "--name ..: a name is that of one folder; --out says where it lies"),
        (["train", "toy", "--resume", "no/such"], "checkpoint no/such does not exist: check the path"),
        (["config", "toy", "extra"], "unexpected 'extra': settings are written --name value"),
        (["eval", "toy", "--dummy", "--episodes", "0"],
         "argument --episodes: '0' is not a whole number of at least 1; see lookact eval --help"),
        (["eval", "toy"], "nothing to measure, or two things: give either --checkpoint PATH or --dummy"),
        (["doctor", "--jsn"], "unknown option --jsn: did you mean --json?"),
        (["collect", "toy", "--episodes", "3"], "--out is missing; see lookact collect --help"),
    ],
)  # fmt: skip
def test_bad_usage_is_one_line_and_exit_code_2(words, line, capsys):
    assert failure(capsys, *words) == (2, line)


def test_a_bad_config_file_is_one_line_and_exit_code_2(tmp_path, capsys):
    (tmp_path / "my.yaml").write_text("optim:\n  lrr: 1\n")
    code, line = failure(capsys, "train", "toy", "--config", "my.yaml")
    assert (code, line) == (2, "unknown setting optim.lrr: did you mean optim.lr?")
    assert failure(capsys, "train", "toy", "--config", "none.yaml")[0] == 2


def test_a_failed_run_is_one_line_and_exit_code_1(capsys):
    assert main(["train", "toy", "--name", "a", "--fail", "engine"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "lookact: the engine is gone"
    assert main(["train", "toy", "--name", "b", "--fail", "bug"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "lookact: failed: RuntimeError: two lines (--debug shows where)"


def test_debug_shows_the_traceback():
    with pytest.raises(RuntimeError, match="two"):
        main(["train", "toy", "--fail", "bug", "--debug"])


def test_an_interrupt_is_one_line_and_exit_code_130(capsys):
    assert main(["train", "toy", "--fail", "interrupt"]) == 130
    assert "--auto-resume" in capsys.readouterr().err.splitlines()[-1]


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m lookact --help | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stderr == ""
