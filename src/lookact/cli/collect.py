"""Run episodes and keep them on disk: a manifest line and a tensor file each. Run again, it continues."""

from __future__ import annotations

import json
from pathlib import Path

from lookact.cli.output import say, show_counts
from lookact.cli.parser import Arguments, Parser, positive_int
from lookact.cli.recipe_sources import short_name
from lookact.cli.recipes import add_recipe_options, load_settings, prepare, recall_recipe, show_help
from lookact.errors import ConfigError

TAKES_SETTINGS = True
EXAMPLES = (
    "lookact collect nav-rloo --episodes 100 --out episodes",
    "lookact collect nav-rloo --episodes 100 --out episodes --checkpoint runs/nav-rloo/small-seed0/best",
    "lookact collect vla-ppo --demos 200 --out demos",
)


def add_options(parser: Parser) -> None:
    add_recipe_options(parser)
    count = parser.add_mutually_exclusive_group()
    count.add_argument(
        "--episodes", metavar="N", type=positive_int, help="how many episodes the folder holds in the end"
    )
    count.add_argument(
        "--demos", metavar="N", type=positive_int, help="the same, where they are an expert's demonstrations"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help="where the episodes go")
    parser.add_argument("--checkpoint", metavar="PATH", type=Path, help="who acts (default: the recipe's fresh model)")
    parser.add_argument("--json", action="store_true", help="print the counts as one JSON object")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    if show_help(parser, arguments):
        return
    recall_recipe(arguments)
    load_settings(arguments.recipe)
    episodes = arguments.episodes or arguments.demos
    for option, value in (("episodes", episodes), ("out", arguments.out)):
        if value is None:
            raise ConfigError(f"--{option} is missing; see lookact collect --help")
    recipe, cfg, checkpoint = prepare(arguments, words, parser, "collect", arguments.out)
    result = recipe.collect(cfg, checkpoint=checkpoint, episodes=episodes, out=arguments.out)
    if arguments.json:
        say(json.dumps(result))
        return
    show_counts(result, title=f"{short_name(arguments.recipe)} episodes")
    say(f" the episodes are in {arguments.out}")
