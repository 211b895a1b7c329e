import json

from benchmarks import group_methods
from lookact.cli.parser import find_command
from lookact.cli.recipes import make_config


def test_every_method_is_a_whole_config_of_its_own():
    found = []
    for method in group_methods.METHODS.values():
        _, parser = find_command("train")
        arguments, rest = parser.parse_known_args(["rloo", *group_methods.TASK, *group_methods.RL, *method])
        found.append(make_config(arguments, rest, parser=parser).learn)
    assert {learn.iterations for learn in found} == {15}
    assert len(set(found)) == len(group_methods.METHODS)


def test_the_table_has_a_row_a_method_and_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(group_methods, "RECORDS", tmp_path)
    for seed, rate in ((0, 0.5), (1, 0.7)):
        reports = {how: {"success_rate": rate} for how in ("sampled", "greedy")}
        kept = {"cpu_seconds": 10.0, "before": reports, "after": reports}
        (tmp_path / f"rloo-seed-{seed}.json").write_text(json.dumps(kept))
    lines = group_methods.table([0, 1]).splitlines()
    assert lines[2:] == [
        "| the supervised start | 50%, 70% | 60.0% | 50%, 70% | 60.0% | |",
        "| RLOO | 50%, 70% | 60.0% | 50%, 70% | 60.0% | 10 |",
    ]
