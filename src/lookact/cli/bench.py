"""Measure speed. Every number is a ratio of two ways to do one thing, measured in the same run."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from lookact.cli.output import show_result, write_json
from lookact.cli.parser import Arguments, Parser
from lookact.errors import ConfigError
from lookact.train.config_values import closest, shown

BENCHES = {"worlds": "lookact.bench.worlds", "nav": "lookact.bench.nav"}
"""Name to a module with `main() -> dict` of measurements."""
EXAMPLES = ("lookact bench all", "lookact bench all --output benchmarks.json")


def add_options(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help=", ".join([*built(), "all"]))
    parser.add_argument("--output", metavar="FILE", type=Path, help="also write the measurements to this JSON file")
    parser.add_argument("--json", action="store_true", help="print the measurements as one JSON object")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    name = arguments.name
    if name != "all" and name not in built():
        near = closest(name, [*built(), "all"])
        remedy = f"did you mean {near}?" if near else f"choose one of {', '.join([*built(), 'all'])}"
        raise ConfigError(f"unknown bench {shown(name)[1:-1]}: {remedy}")
    chosen = built() if name == "all" else [name]
    result: dict[str, Any] = {each: importlib.import_module(BENCHES[each]).main() for each in chosen}
    if arguments.output:
        write_json(result, arguments.output)
    show_result(result, as_json=arguments.json, title="bench")


def built() -> list[str]:
    """The benches whose module is there."""
    return [name for name, module in BENCHES.items() if _is_there(module)]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
