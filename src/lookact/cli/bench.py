"""Measure speed. Every number is a ratio of two ways to do one thing, measured in the same run."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lookact.cli.output import new_table, say, show_table, write_json
from lookact.cli.parser import Arguments, Parser
from lookact.config.values import unknown
from lookact.errors import ConfigError

BENCHES = {name: f"benchmarks.{name}" for name in ("worlds", "nav", "rollout", "control", "scale", "remote")}
"""Name to a module whose `main()` gives what `benchmarks.report.plain` makes."""
CHECKOUT = Path(__file__).parents[3]
EXAMPLES = ("lookact bench all", "lookact bench all --out benchmarks/speed")


def add_options(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help=", ".join([*BENCHES, "all"]))
    parser.add_argument("--out", metavar="DIR", type=Path, help="also write NAME.json and a README.md into this folder")
    parser.add_argument("--json", action="store_true", help="print the measurements as one JSON object")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    name = arguments.name
    if name != "all" and name not in BENCHES:
        raise unknown("bench", name, [*BENCHES, "all"])
    find_benchmarks()
    chosen = list(BENCHES) if name == "all" else [name]
    if arguments.out:
        note_versions(arguments.out)
    result: dict[str, Any] = {each: importlib.import_module(BENCHES[each]).main() for each in chosen}
    if arguments.out:
        write_folder(result, arguments.out, command=f"lookact bench {name} --out {arguments.out}")
    if arguments.json:
        say(json.dumps(result))
        return
    for each, measured in result.items():
        show_rows(measured, title=f"{each}: {measured['about']}")


def show_rows(measured: Mapping[str, Any], *, title: str) -> None:
    """A table with a row for each comparison, and what there is to know about it below."""
    from benchmarks.report import format_aims, format_load, format_ratio

    table = new_table()
    for heading in ("measured", "LookAct", "against", "ratio", "aim", "memory"):
        table.add_column(heading)
    for row in measured["rows"]:
        table.add_row(row["name"], row["ours"], row["against"], format_ratio(row), format_aims(row), row["memory"])
    notes = [f" - {note}" for note in (*measured["notes"], format_load(measured))]
    show_table(table, title, note="\n".join(notes).strip(), width=160)


def note_versions(folder: Path) -> None:
    """Which code is about to run: noted before it does, since a checkout can move on meanwhile."""
    from lookact.training.run_files import write_versions

    folder.mkdir(parents=True, exist_ok=True)
    # those of an earlier bench are no concern of this one
    (folder / "versions.json").unlink(missing_ok=True)
    write_versions(folder)


def write_folder(result: Mapping[str, Mapping[str, Any]], folder: Path, *, command: str) -> None:
    """One JSON file a bench, and a page of all tables."""
    from benchmarks.report import page

    for each, measured in result.items():
        write_json(measured, folder / f"{each}.json")
    commit = json.loads((folder / "versions.json").read_text(encoding="utf-8"))["commit"]
    (folder / "README.md").write_text(page(result, command=command, commit=commit), encoding="utf-8")


def find_benchmarks() -> None:
    """Make `benchmarks/` importable: it lies beside `src/` in a checkout, and is no part of the package."""
    if importlib.util.find_spec("benchmarks") is None:
        if not (CHECKOUT / "benchmarks" / "__init__.py").is_file():
            raise ConfigError("lookact bench needs a checkout of LookAct: its benchmarks/ folder is not in the package")
        sys.path.insert(0, str(CHECKOUT))
