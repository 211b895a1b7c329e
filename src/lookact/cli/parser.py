"""The table of commands, how a command line finds its own, and parsers that answer a mistake with one line.

A command is a module whose docstring is its help, with `EXAMPLES`, `add_options(parser)` and
`run(arguments, words, parser)`; with `TAKES_SETTINGS`, words it does not know are settings of a recipe.
Modules import what is heavy inside functions, so that help comes at once.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from lookact import __version__
from lookact.cli.recipe_sources import RECIPES, offered
from lookact.config.values import closest, shown, unknown
from lookact.errors import ConfigError

Arguments = argparse.Namespace
Parser = argparse.ArgumentParser
COMMANDS = {
    "train": "train a recipe",
    "eval": "measure a checkpoint, or a random policy",
    "pretrain": "make the general tiny model that --model.source general-tiny takes",
    "verify": "run a result again and compare, number by number",
    "collect": "run episodes and keep them on disk",
    "config": "print a recipe's settings as YAML",
    "plan": "say whether a run fits its GPUs, and how long a step takes",
    "demo": "a tiny vision-language model learns to navigate",
    "scenes": "make, draw and check rooms",
    "serve": "serve a vision-language model over HTTP",
    "serve-policy": "serve a control policy over websocket",
    "env-server": "serve a task's environments over HTTP",
    "parity": "certify that a model is scored as it is sampled",
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


def new_parser(prog: str, description: str, *, examples: Sequence[str] = (), help_option: bool = True) -> Parser:
    """A parser that raises ConfigError on bad usage and shows examples under its help."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog="examples:\n" + "\n".join(f"  {example}" for example in examples) if examples else None,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=30, width=110),
        allow_abbrev=False,
        add_help=help_option,
    )

    def refuse(message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {prog} --help")

    parser.error = refuse  # type: ignore[method-assign]
    return parser


def refuse_unknown(parser: Parser, words: Sequence[str]) -> None:
    """Raise for the first word no option took, naming the option that was probably meant."""
    if not words:
        return
    near = closest(words[0].partition("=")[0], option_names(parser))
    remedy = f"did you mean {near}?" if near else f"see {parser.prog} --help"
    raise ConfigError(f"unknown option {shown(words[0])[1:-1]}: {remedy}")


def option_names(parser: Parser) -> list[str]:
    return sorted(set(re.findall(r"(?<![\w-])--[\w-]+", parser.format_help())))


def positive_int(text: str) -> int:
    """An argparse type: a whole number from 1 on."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


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
        raise unknown("command", name, COMMANDS, otherwise="the commands are")
    command = importlib.import_module(f"lookact.cli.{name.replace('-', '_')}")
    takes_settings = getattr(command, "TAKES_SETTINGS", False)
    parser = new_parser(
        f"lookact {name}", str(command.__doc__).strip(), examples=command.EXAMPLES, help_option=not takes_settings
    )
    command.add_options(parser)
    return command, parser


def top_parser() -> Parser:
    """The parser behind `lookact --help`."""
    recipes = ", ".join(dict.fromkeys([*RECIPES, *offered()]))
    about = "Reinforcement-learning post-training of agents that look and act."
    parser = new_parser("lookact", f"{about}\nRecipes: {recipes}, or your own.", examples=EXAMPLES)
    parser.add_argument("--version", action="version", version=f"lookact {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback when something fails")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary)
    return parser
