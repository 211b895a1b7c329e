import json

from lookact.cli.output import clock, format_value, show_counts, show_result

REPORT = {"success_rate": 0.25, "spl": 0.2, "turns": 8.0, "episodes": 4, "ci": {"success_rate": [0.1, 0.5]}}


def lines(capsys) -> list[list[str]]:
    """What was said, split into cells."""
    text = capsys.readouterr().out
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines() if line.strip()]


def test_intervals_stand_beside_their_values(capsys):
    show_result(REPORT, as_json=False, title="eval")
    assert lines(capsys) == [
        ["eval"],
        ["success", "25% [10, 50]"],
        ["SPL", "0.20"],
        ["turns", "8.0"],
        ["episodes", "4"],
        ["in brackets: 95% intervals"],
    ]


def test_first_names_are_columns_and_second_names_split_rows(capsys):
    better = {**REPORT, "success_rate": 1.0, "ci": {}}
    show_result({"before": {"greedy": REPORT}, "after": {"greedy": REPORT, "sampled": better}}, as_json=False, title="")
    shown = lines(capsys)
    assert shown[0] == ["before", "after"]
    assert shown[2] == ["success", "greedy", "25% [10, 50]", "25% [10, 50]"]
    assert shown[3] == ["sampled", "100%"]
    # the same for every kind: one row
    assert shown[-2] == ["episodes", "4", "4"]


def test_it_fits_a_terminal_of_80_columns(capsys):
    report = {**REPORT, "ci": {"success_rate": [0.11, 0.55], "spl": [0.15, 0.25], "turns": [7.1, 8.9]}}
    modes = {"greedy": report, "sampled": report}
    show_result({"random": modes, "warm start": modes, "after RL": modes}, as_json=False, title="")
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_json_is_one_object(capsys):
    show_result({**REPORT, "seconds": {"imitating": 3.0}}, as_json=True, title="")
    assert json.loads(capsys.readouterr().out)["seconds"] == {"imitating": 3.0}


def test_seconds_are_told_with_their_sum(capsys):
    show_result({**REPORT, "seconds": {"imitating": 61.0, "evaluating": 59.4}}, as_json=False, title="")
    assert lines(capsys)[-3:] == [["imitating", "1:01"], ["evaluating", "0:59"], ["in all", "2:00"]]
    assert clock(3599.6) == "60:00"


def test_counts_come_with_their_shares(capsys):
    counts = {"episodes": 4, "dropout_rate": 0.25, "methods": {"brace_depth": 9, "failed": 1}, "reasons": {}}
    show_counts(counts, title="episodes")
    assert lines(capsys)[1:] == [
        ["episodes", "4"],
        ["dropped", "25%"],
        ["turns by masking method", "brace_depth", "9 (90%)"],
        ["failed", "1 (10%)"],
    ]


def test_values_that_are_no_numbers_are_told_as_they_are():
    assert format_value("folder", "a/b") == "a/b"
    assert format_value("greedy", True) == "True"
    assert format_value("success_rate", 1, [0.5, 1.0]) == "100% [50, 100]"
