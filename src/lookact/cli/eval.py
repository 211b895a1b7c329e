"""Measure a checkpoint on held-out episodes, or a random policy with --dummy. Pictures and episodes go to a folder.

`lookact eval vsi-bench` asks any model VSI-Bench's rows about their videos; its --help lists its options.
"""

from __future__ import annotations

from pathlib import Path

from lookact.cli import vsi_bench
from lookact.cli.output import say, show_result, write_json
from lookact.cli.parser import Arguments, Parser, positive_int
from lookact.cli.recipe_sources import short_name
from lookact.cli.recipes import add_recipe_options, load_settings, prepare, recall_recipe, recipe_title, show_help
from lookact.errors import ConfigError

TAKES_SETTINGS = True
EXAMPLES = (
    "lookact eval nav-rloo --checkpoint runs/nav-rloo/small-seed0/best --greedy",
    "lookact eval nav-rloo --dummy --episodes 20 --json",
    "lookact eval vqa-ppo --dummy --max-questions 2",
    "lookact eval runs/vla-ppo/small-seed0 --greedy --episodes 50",
    "lookact eval vsi-bench --questions test.parquet --videos VSI-Bench --model Qwen/Qwen3-VL-8B-Instruct",
)


def add_options(parser: Parser) -> None:
    add_recipe_options(parser)
    parser.add_argument("--checkpoint", metavar="PATH", type=Path, help="the checkpoint folder to measure")
    parser.add_argument("--dummy", action="store_true", help="measure a uniformly random policy instead")
    count = parser.add_mutually_exclusive_group()
    count.add_argument(
        "--episodes", metavar="N", type=positive_int, default=200, help="how many episodes (default: 200)"
    )
    count.add_argument(
        "--max-questions", metavar="N", type=positive_int, help="the same, where an episode is a question"
    )
    parser.add_argument("--greedy", action="store_true", help="take the likeliest action instead of sampling")
    parser.add_argument("--out", metavar="DIR", type=Path, help="for pictures and episodes (default: runs/RECIPE/eval)")
    parser.add_argument("--output", metavar="FILE", type=Path, help="also write the result to this JSON file")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    if arguments.recipe == vsi_bench.NAME:
        spoken = [word for word in arguments.words[1:] if word != "--debug"]
        spoken.remove(vsi_bench.NAME)
        vsi_bench.run(spoken)
        return
    if show_help(parser, arguments):
        return
    recall_recipe(arguments)
    load_settings(arguments.recipe)
    if arguments.dummy == (arguments.checkpoint is not None):
        raise ConfigError("nothing to measure, or two things: give either --checkpoint PATH or --dummy")
    folder = arguments.out or Path("runs") / short_name(arguments.recipe) / "eval"
    recipe, cfg, checkpoint = prepare(arguments, words, parser, "eval", folder)
    episodes = arguments.max_questions or arguments.episodes
    result = recipe.evaluate(
        cfg, checkpoint=checkpoint, episodes=episodes, greedy=arguments.greedy, dummy=arguments.dummy, folder=folder
    )
    if arguments.output:
        write_json(result, arguments.output)
    title = f"{recipe_title(arguments.recipe, cfg)}, {policy_title(arguments)}"
    show_result(result, as_json=arguments.json, title=title)
    if not arguments.json:
        say(f" pictures and episodes are in {folder}")
        say(f" in the browser: lookact view {folder}")


def policy_title(arguments: Arguments) -> str:
    """Who was measured, and how it chose."""
    if arguments.dummy:
        return "random policy"
    return f"{arguments.checkpoint}, {'greedy' if arguments.greedy else 'sampled'}"
