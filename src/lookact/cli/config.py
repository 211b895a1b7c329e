"""Print a recipe's settings as YAML, ready to edit and to give back with --config."""

from __future__ import annotations

import json
import sys

from lookact.cli.output import say
from lookact.cli.parser import Arguments, Parser
from lookact.cli.recipes import add_recipe_options, make_config, show_help
from lookact.config import to_mapping, to_yaml

TAKES_SETTINGS = True
EXAMPLES = (
    "lookact config nav-rloo --preset small > my.yaml",
    "lookact config nav-rloo --preset full --learn.lr 2e-5 --json",
)


def add_options(parser: Parser) -> None:
    add_recipe_options(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    if show_help(parser, arguments):
        return
    cfg = make_config(arguments, words, parser=parser)
    if arguments.json:
        say(json.dumps(to_mapping(cfg), indent=2))
    else:
        sys.stdout.write(to_yaml(cfg))
