import importlib.util

import pytest

from benchmarks import nav
from benchmarks.timing import Timing


def fake_race(ways, *, repetitions):
    facts = {"picture_seconds": 1.0, "flops": 2e9}
    seconds = {"ours": (1.0, 1.0), "against": (4.0, 2.0)}
    return {side: Timing(seconds[side], seconds[side], 100.0, 150.0, facts) for side in ways}


def test_without_trl_its_row_says_how_to_install_it(monkeypatch, folder, load):
    monkeypatch.setattr(nav, "race", fake_race)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    row = nav.trl_row(folder, load, 2)
    assert row.against == "not installed: pip install 'lookact[bench]'"
    assert row.ours == "1.00 s"
    assert row.ratio is None
    assert row.met == ()


def test_the_trl_row_tells_the_ratio_without_its_picture_processing(monkeypatch, folder, load):
    monkeypatch.setattr(nav, "race", fake_race)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    row = nav.trl_row(folder, load, 2)
    assert (row.ratio, row.ratio_range, row.met) == (3.0, (2.0, 4.0), (True,))
    assert row.detail["ratio_without_trl_picture_processing"] == 1.0
    assert row.against == "3.00 s, 1.00 s on pictures"
    assert row.memory == "150 (+50) MB / 150 (+50) MB"


def test_the_share_of_plain_products_is_time_against_time(monkeypatch, folder, load):
    monkeypatch.setattr(
        nav,
        "race",
        lambda ways, *, repetitions: {
            "ours": Timing((4.0,), (4.0,), 0.0, 0.0, {"flops": 2e9}),
            "against": Timing((1.0,), (1.0,), 0.0, 0.0, {"flops": 2e9}),
        },
    )
    row = nav.flops_row(folder, load, 1)
    assert (row.ratio, row.ours, row.against) == (0.25, "0.5 GFLOP/s", "2.0 GFLOP/s")


def race_here(ways, *, repetitions):
    """Every way once, in this process."""
    facts = {side: prepare(*arguments)() for side, (prepare, arguments) in ways.items()}
    return {side: Timing((1.0,), (1.0,), 0.0, 0.0, told) for side, told in facts.items()}


@pytest.mark.slow
def test_every_side_runs_and_does_as_much_as_the_other(monkeypatch, load):
    monkeypatch.setattr(nav, "race", race_here)
    rows = nav.main(load=load, repetitions=1)["rows"]
    names = [row["name"].split(",")[0] for row in rows]
    assert names == [
        "rollout",
        "rollout",
        "update",
        "kernels",
        "whole step against TRL",
        "matrix products of the update",
    ]
    equal = ("turns", "prompt_tokens", "units", "flops")
    for row in rows:
        ours, against = (row["detail"].get(side, {"facts": {}})["facts"] for side in ("ours", "against"))
        assert all(ours[name] == against[name] for name in equal if name in ours and name in against)
