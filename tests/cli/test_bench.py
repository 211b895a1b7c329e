import json
import subprocess
import sys
import types

import pytest

from benchmarks.report import Row, plain
from lookact.cli import bench, main

ROWS = [Row("rendering", "2 s", "8 s", 4.0, (3.5, 4.5), ("ratio at least 3",), (True,), "1 (+0) MB / 2 (+1) MB")]


@pytest.fixture(autouse=True)
def toy_bench(monkeypatch):
    module = types.ModuleType("toy_bench")
    vars(module).update(main=lambda: plain(ROWS, about="toys", notes=["a note"]), __spec__=types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "toy_bench", module)
    monkeypatch.setattr(bench, "BENCHES", {"toy": "toy_bench"})


def test_a_bench_prints_a_row_for_each_comparison(capsys):
    assert main(["bench", "toy"]) == 0
    shown = capsys.readouterr().out
    line = next(line for line in shown.splitlines() if "rendering" in line)
    assert all(part in line for part in ("2 s", "8 s", "4.00 (3.50 to 4.50)", "ratio at least 3: met", "1 (+0) MB"))
    assert "- a note" in shown


def test_out_writes_a_file_for_each_bench_and_a_page(tmp_path, capsys):
    folder = tmp_path / "speed"
    for _ in range(2):
        assert main(["bench", "all", "--out", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert json.loads((folder / "toy.json").read_text()) == told["toy"]
    commit = json.loads((folder / "versions.json").read_text())["commit"]
    page = (folder / "README.md").read_text()
    assert f"`lookact bench all --out {folder}` at commit `{commit or 'unknown'}`" in page
    assert "| rendering | 2 s | 8 s | 4.00 (3.50 to 4.50) | ratio at least 3: met |" in page


def test_the_versions_are_those_before_the_bench_began(tmp_path, monkeypatch):
    seen = []

    def measure():
        seen.append((tmp_path / "versions.json").exists())
        return plain(ROWS, about="toys")

    monkeypatch.setattr(sys.modules["toy_bench"], "main", measure)
    assert main(["bench", "toy", "--out", str(tmp_path), "--json"]) == 0
    assert seen == [True]


def test_the_checkouts_benches_are_found_from_anywhere(tmp_path):
    code = "from lookact.cli import bench; bench.find_benchmarks(); import benchmarks.report"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_without_a_checkout_one_line_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "CHECKOUT", tmp_path)
    monkeypatch.setattr(bench.importlib.util, "find_spec", lambda name: None)
    assert main(["bench", "toy"]) == 2
    assert capsys.readouterr().err == (
        "lookact: lookact bench needs a checkout of LookAct: its benchmarks/ folder is not in the package\n"
    )
