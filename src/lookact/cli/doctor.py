"""Say in plain lines what works on this machine: ✓ works, ✗ needs mending, – not installed and not needed yet."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

from lookact.cli.checks import ABSENT, BROKEN, CHECKS, OK, Finding
from lookact.cli.output import say
from lookact.cli.parser import Arguments, Parser

EXAMPLES = ("lookact doctor", "lookact doctor --json")
SIGNS = {OK: "✓", BROKEN: "✗", ABSENT: "–"}


def add_options(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print the findings as one JSON object")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    if arguments.json:
        say(json.dumps({name: dataclasses.asdict(examine(check)) for name, check in CHECKS.items()}))
        return
    for name, check in CHECKS.items():
        finding = examine(check)
        remedy = f"; {finding.remedy}" if finding.remedy else ""
        say(f"{SIGNS[finding.state]} {name:<13} {finding.detail}{remedy}")


def examine(check: Callable[[], Finding]) -> Finding:
    """A check's answer; a check that fails is an answer too."""
    try:
        return check()
    except Exception as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())
        return Finding(BROKEN, told[:200], "reinstall with make setup")
