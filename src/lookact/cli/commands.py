"""The table of commands, and how a command line finds its own.

A command is a module whose docstring is its help, with `EXAMPLES`, `add_options(parser)` and
`run(arguments, words, parser)`; with `TAKES_SETTINGS`, words it does not know are settings of a recipe.
Modules import what is heavy inside functions, so that help comes at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from lookact import __version__
from lookact.cli.parser import Parser, new_parser, refuse_unknown
from lookact.config.values import closest, shown
from lookact.errors import ConfigError

COMMANDS = {
    "train": "train a recipe",
    "eval": "measure a checkpoint, or a random policy",
    "collect": "run episodes and keep them on disk",
    "config": "print a recipe's settings as YAML",
    "demo": "a tiny vision-language model learns to navigate",
    "scenes": "make, draw and check rooms",
    "serve": "serve a vision-language model over HTTP",
    "plot": "draw figures from runs and logs",
    "view": "show runs and episodes in the browser",
    "bench": "measure speed, as ratios within one run",
    "doctor": "say what works on this machine",
}
EXAMPLES = (
    "lookact demo",
    "lookact train nav-rloo --preset debug --learn.lr 1e-4",
    "lookact eval nav-rloo --dummy --episodes 20",
    "lookact train nav-rloo --help      every setting of a recipe",
)


def run(words: Sequence[str]) -> None:
    """Run the command that the words name; `--debug` may stand anywhere among them, and is for `main`."""
    spoken = [word for word in words if word != "--debug"]
    if not spoken or spoken[0] in ("-h", "--help", "help"):
        top_parser().print_help()
        return
    if spoken[0] == "--version":
        top_parser().parse_args(spoken[:1])
    command, parser = find_command(spoken[0])
    arguments, rest = parser.parse_known_args(spoken[1:])
    # for a command that starts itself again in other processes
    arguments.words = list(words)
    if not getattr(command, "TAKES_SETTINGS", False):
        refuse_unknown(parser, rest)
    command.run(arguments, rest, parser)


def find_command(name: str) -> tuple[Any, Parser]:
    """The module of a command and its parser."""
    if name not in COMMANDS:
        near = closest(name, COMMANDS)
        remedy = f"did you mean {near}?" if near else f"the commands are {', '.join(COMMANDS)}"
        raise ConfigError(f"unknown command {shown(name)[1:-1]}: {remedy}")
    command = importlib.import_module(f"lookact.cli.{name}")
    takes_settings = getattr(command, "TAKES_SETTINGS", False)
    parser = new_parser(
        f"lookact {name}", str(command.__doc__).strip(), examples=command.EXAMPLES, help_option=not takes_settings
    )
    command.add_options(parser)
    return command, parser


def top_parser() -> Parser:
    """The parser behind `lookact --help`."""
    parser = new_parser(
        "lookact", "Reinforcement-learning post-training of agents that look and act.", examples=EXAMPLES
    )
    parser.add_argument("--version", action="version", version=f"lookact {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback when something fails")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary)
    return parser
