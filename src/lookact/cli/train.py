"""Train a recipe. The run folder is OUT/RECIPE/NAME; what is saved there is enough to continue bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lookact.cli.output import say, show_log, show_result
from lookact.cli.parser import Arguments, Parser
from lookact.cli.recipes import (
    PRESET,
    Recipe,
    add_recipe_options,
    existing,
    helped,
    load_recipe,
    make_config,
    saved_config,
)
from lookact.train.config import to_mapping

TAKES_SETTINGS = True
EXAMPLES = (
    "lookact train nav-rloo --preset debug",
    "lookact train nav-rloo --name warm --seed 3 --learn.lr 1e-4",
    "lookact train nav-rloo --config my.yaml --auto-resume",
)


def add_options(parser: Parser) -> None:
    add_recipe_options(parser)
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("runs"), help="where runs are kept (default: runs)"
    )
    parser.add_argument("--name", metavar="N", help="the run's name (default: PRESET-seedSEED)")
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--resume", metavar="PATH", type=Path, help="continue from this checkpoint or run folder")
    again.add_argument("--auto-resume", action="store_true", help="continue the run of this name if it was begun")
    parser.add_argument(
        "--wandb", choices=("off", "offline", "online"), default="off", help="log to Weights & Biases too"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    if helped(parser, arguments):
        return
    recipe = load_recipe(arguments.recipe)
    resume = existing(arguments.resume, "checkpoint")
    cfg = make_config(recipe, arguments, words, parser=parser, start=_begun(arguments))
    folder = run_folder(arguments, cfg)
    result = train(recipe, cfg, folder, resume=resume, auto_resume=arguments.auto_resume, wandb=arguments.wandb)
    show_result(result, as_json=arguments.json, title=f"{arguments.recipe}, seed {cfg.seed}")
    if not arguments.json:
        say(f"the run is in {folder}")


def train(recipe: Recipe, cfg: Any, folder: Path, **how: Any) -> dict[str, Any]:
    """Train in a run folder, with the other processes if torchrun started us; `how` is as in `open_run`."""
    from lookact.train.distributed import close_distributed, init_distributed
    from lookact.train.run import open_run

    show_log()
    init_distributed()
    try:
        with open_run(folder, to_mapping(cfg), **how) as run:
            return recipe.main(cfg, run)
    finally:
        close_distributed()


def run_folder(arguments: Arguments, cfg: Any) -> Path:
    """Where the run lives; a resumed one stays where it was unless it is given a name."""
    saved = saved_config(arguments.resume) if arguments.resume and not arguments.name else None
    if saved is not None:
        return saved.parent
    return Path(arguments.out, arguments.recipe, arguments.name or f"{arguments.preset or PRESET}-seed{cfg.seed}")


def _begun(arguments: Arguments) -> Path | None:
    """What this run goes on from, as far as the command line says by name: its config is kept."""
    if arguments.auto_resume and arguments.name:
        return Path(arguments.out, arguments.recipe, arguments.name)
    return Path(arguments.resume) if arguments.resume else None
