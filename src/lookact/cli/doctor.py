"""Say what works on this machine, and what each extra of `pip install 'lookact[…]'` would enable.

✓ works, ✗ needs mending, – not installed and not needed yet.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence

from lookact import __version__
from lookact.cli.checks import ABSENT, BROKEN, CHECKS, OK, Finding
from lookact.cli.extras import EXTRA_CHECKS
from lookact.cli.output import say
from lookact.cli.parser import Arguments, Parser
from lookact.extras import BASE, EXTRAS

EXAMPLES = ("lookact doctor", "lookact doctor --json")
SIGNS = {OK: "✓", BROKEN: "✗", ABSENT: "–"}
INDENT = 13
"""Where what is said of a name begins: after its sign and the longest name."""
WIDEST = 100


def add_options(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print the findings as one JSON object")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    if arguments.json:
        say(json.dumps(report()))
        return
    say(f"LookAct {__version__} on this machine   ✓ works   ✗ needs mending   – not installed\n")
    for name, check in CHECKS.items():
        finding = examine(check)
        show(finding.state, name, finding.detail, finding.remedy)
    say("\nWhat is installed, and what it enables\n")
    show(OK, "base", listed(BASE))
    for name, check in EXTRA_CHECKS.items():
        finding = examine(check)
        # what is not there is told by its remedy
        detail = "" if finding == Finding(ABSENT, "not installed", finding.remedy) else finding.detail
        show(finding.state, name, listed(EXTRAS[name].enables), detail, finding.remedy)


def report() -> dict[str, object]:
    """Everything that is found, by name."""
    machine = {name: dataclasses.asdict(examine(check)) for name, check in CHECKS.items()}
    extras = {
        name: {**dataclasses.asdict(examine(check)), "enables": EXTRAS[name].enables}
        for name, check in EXTRA_CHECKS.items()
    }
    return {"version": __version__, "machine": machine, "base": {"enables": BASE}, "extras": extras}


def examine(check: Callable[[], Finding]) -> Finding:
    """A check's answer; a check that fails is an answer too."""
    try:
        return check()
    except Exception as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())
        return Finding(BROKEN, told[:200], "pip install --force-reinstall lookact, or make clean setup")


def listed(enabled: Sequence[str]) -> str:
    return " · ".join(enabled)


def show(state: str, name: str, *texts: str) -> None:
    """A sign and a name, and beside them each text from a line of its own; said at once, for checks take their time."""
    width = min(shutil.get_terminal_size().columns, WIDEST) - INDENT
    lines = [line for text in texts for line in textwrap.wrap(text, width, break_on_hyphens=False)]
    say(f"{SIGNS[state]} {name}".ljust(INDENT) + f"\n{' ' * INDENT}".join(lines))
    sys.stdout.flush()
