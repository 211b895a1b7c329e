"""Run episodes and keep them on disk: a manifest line and a tensor file each. Run again, it continues."""

from __future__ import annotations

import json
from pathlib import Path

from lookact.cli.output import say, show_counts, show_log
from lookact.cli.parser import Arguments, Parser, at_least_one
from lookact.cli.recipes import (
    add_recipe_options,
    check_start,
    helped,
    load_recipe,
    load_settings,
    make_config,
    named_checkpoint,
)
from lookact.errors import ConfigError
from lookact.training.preflight import Job
from lookact.training.run_files import saved_config

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
        "--episodes", metavar="N", type=at_least_one, help="how many episodes the folder holds in the end"
    )
    count.add_argument(
        "--demos", metavar="N", type=at_least_one, help="the same, where they are an expert's demonstrations"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help="where the episodes go")
    parser.add_argument("--checkpoint", metavar="PATH", type=Path, help="who acts (default: the recipe's fresh model)")
    parser.add_argument("--json", action="store_true", help="print the counts as one JSON object")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    if helped(parser, arguments):
        return
    load_settings(arguments.recipe)
    episodes = arguments.episodes or arguments.demos
    for option, value in (("episodes", episodes), ("out", arguments.out)):
        if value is None:
            raise ConfigError(f"--{option} is missing; see lookact collect --help")
    checkpoint = named_checkpoint(arguments, "collect")
    saved = None if checkpoint is None else saved_config(checkpoint)
    cfg = make_config(arguments, words, parser=parser, saved=saved)
    check_start(arguments.recipe, cfg, Job("collect", arguments.out, checkpoint))
    recipe = load_recipe(arguments.recipe)
    arguments.out.mkdir(parents=True, exist_ok=True)
    show_log()
    result = recipe.collect(cfg, checkpoint=checkpoint, episodes=episodes, out=arguments.out)
    if arguments.json:
        say(json.dumps(result))
        return
    show_counts(result, title=f"{arguments.recipe} episodes")
    say(f" the episodes are in {arguments.out}")
