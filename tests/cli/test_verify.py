"""`lookact verify` with the toy recipe: from a run, from its card, from a record with its command; and bad cards."""

import json

import pytest

from lookact.cli import main


def verified(capsys, *words):
    code = main(["verify", *map(str, words), "--json"])
    out = capsys.readouterr()
    return code, {row["name"]: row["verdict"] for row in json.loads(out.out)["measures"]} if out.out else out.err


@pytest.fixture
def finished(toy, capsys, tmp_path):
    """A finished run whose result has an interval."""
    plain = toy.main

    def measured(cfg, run):
        rate = {"success_rate": cfg.optim.lr, "ci": {"success_rate": [cfg.optim.lr - 0.1, cfg.optim.lr + 0.1]}}
        return {**plain(cfg, run), "after": rate}

    toy.main = measured
    assert main(["train", "toy", "--optim.lr", "0.5", "--group_size", "4", "--name", "n"]) == 0
    capsys.readouterr()
    return tmp_path / "runs/toy/n"


def rewrite(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_run_is_done_again_with_its_own_settings(finished, capsys):
    code, verdicts = verified(capsys, finished)
    assert code == 0
    assert verdicts == dict.fromkeys(
        ("lr", "seed", "group_size", "before.sampled.success_rate", "after.success_rate"), "same"
    )
    assert "lr: 0.5" in (finished.parent / "n-again/config.yaml").read_text()


def test_a_measure_outside_its_interval_ends_with_code_1_and_is_named(finished, capsys):
    def higher(result):
        result["after"] = {"success_rate": 0.9, "ci": {"success_rate": [0.8, 1.0]}}

    rewrite(finished / "result.json", higher)
    assert main(["verify", str(finished)]) == 1
    out = capsys.readouterr()
    assert "0.9 [0.8, 1]" in out.out
    assert "DIFFERS" in out.out
    assert out.err.endswith("lookact: 1 of 5 measures differ: after.success_rate\n")


def test_a_card_holds_all_that_the_run_took(finished, capsys, tmp_path):
    card = tmp_path / "card.json"
    assert main(["verify", str(finished), "--card", str(card)]) == 0
    assert "wrote" in capsys.readouterr().out
    rewrite(card, lambda content: content["versions"].update(torch="1.0"))
    assert main(["verify", str(card), "--out", "elsewhere"]) == 0
    out = capsys.readouterr().out
    assert "5 same" in out
    assert "torch 1.0 →" in out
    assert (tmp_path / "elsewhere/toy/card-again/result.json").is_file()


def test_a_record_is_done_again_by_its_command(finished, capsys, tmp_path):
    record = tmp_path / "record.json"
    command = "lookact train toy --optim.lr 0.5 --out benchmarks/runs --name other"
    kept = {"command": command, "after": {"success_rate": 0.55, "ci": {"success_rate": [0.45, 0.65]}}}
    record.write_text(json.dumps(kept))
    assert verified(capsys, record) == (0, {"after.success_rate": "agrees"})
    assert (tmp_path / "runs/toy/record-again").is_dir()


def test_a_second_verification_is_no_resumed_first_one(finished, capsys):
    assert verified(capsys, finished)[0] == 0
    code, error = verified(capsys, finished)
    assert code == 2
    assert "n-again holds a run" in error
    assert verified(capsys, finished, "--auto-resume")[0] == 0


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "cannot read"),
        ("[1]", "holds no mapping"),
        ("{}", "is no card: it has neither a command nor recipe, settings and result"),
        ('{"command": "rm -rf x"}', "its command is 'rm -rf x', not lookact train"),
        ('{"command": "lookact train toy", "a": "b"}', "have no number in common"),
    ],
)
def test_a_bad_card_is_one_line(content, expected, capsys, tmp_path):
    (tmp_path / "card.json").write_text(content)
    assert main(["verify", "card.json"]) == 2
    assert expected in capsys.readouterr().err.splitlines()[-1]


def test_a_folder_that_is_no_run_and_an_unfinished_one(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["verify", "empty"]) == 2
    assert "is no run folder" in capsys.readouterr().err
    assert main(["train", "toy", "--name", "n"]) == 0
    (tmp_path / "runs/toy/n/result.json").unlink()
    capsys.readouterr()
    assert main(["verify", "runs/toy/n"]) == 2
    assert "result.json: FileNotFoundError; a run that ended has it" in capsys.readouterr().err
