"""Train a recipe. The run folder is OUT/RECIPE/NAME; what is saved there is enough to continue bit for bit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lookact.cli.launch import is_launched, launch, to_launch
from lookact.cli.output import is_first, say, show_log, write_json
from lookact.cli.parser import Arguments, Parser, at_least_one
from lookact.cli.recipes import (
    PRESET,
    add_recipe_options,
    existing,
    helped,
    load_recipe,
    make_config,
    saved_config,
)
from lookact.cli.results import SECONDS, show_result
from lookact.config import to_mapping
from lookact.train.run_files import METRICS, RESULT

TAKES_SETTINGS = True
EXAMPLES = (
    "lookact train nav-rloo --preset debug",
    "lookact train nav-rloo --processes 2",
    "lookact train nav-rloo --name warm --seed 3 --learn.lr 1e-4",
    "lookact train nav-rloo --config my.yaml --auto-resume",
    "lookact train vla-ppo --stage ppo --checkpoint runs/vla-ppo/small-seed0/warm_start --name again",
)


def add_options(parser: Parser) -> None:
    add_recipe_options(parser)
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("runs"), help="where runs are kept (default: runs)"
    )
    parser.add_argument("--name", metavar="N", help="the run's name (default: PRESET-seedSEED)")
    parser.add_argument(
        "--processes", metavar="N", type=at_least_one, default=1, help="that train together, one thread each on a CPU"
    )
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
    resume = existing(arguments.resume, "checkpoint")
    cfg = make_config(arguments, words, parser=parser, start=_begun(arguments))
    folder = run_folder(arguments, cfg)
    how = {"resume": resume, "auto_resume": arguments.auto_resume, "wandb": arguments.wandb}
    result = train_together(arguments.recipe, cfg, folder, processes=arguments.processes, words=arguments.words, **how)
    if is_launched():
        return
    show_result(result, as_json=arguments.json, title=f"{arguments.recipe}, seed {cfg.seed}")
    if not arguments.json:
        say(f" the run is in {folder}")
        say(f" in the browser: lookact view {folder}")


def train_together(
    recipe: str, cfg: Any, folder: Path, *, processes: int, words: Sequence[str], **how: Any
) -> dict[str, Any]:
    """Train in this process, or start as many as are wanted with the command line `words`; returns the result."""
    if not to_launch(processes):
        return train(recipe, cfg, folder, **how)
    launch(words, processes)
    result: dict[str, Any] = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    return result


def train(recipe: str, cfg: Any, folder: Path, **how: Any) -> dict[str, Any]:
    """Train in a run folder, with the other processes if there are any; `how` is as in `open_run`."""
    from lookact.train.distributed import close_distributed, init_distributed
    from lookact.train.run import open_run

    module = load_recipe(recipe)
    show_log()
    init_distributed()
    try:
        with open_run(folder, to_mapping(cfg), **how) as run:
            result = module.main(cfg, run)
            if is_first():
                if SECONDS in result:
                    result[SECONDS]["training steps"] = step_seconds(run.folder)
                write_json(result, folder / RESULT)
            return result
    finally:
        close_distributed()


def step_seconds(folder: Path) -> float:
    """What a run's steps took, by its own metrics: those before it was last resumed count too."""
    lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    return float(sum(value for step in steps for name, value in step.items() if name.startswith("time/") and value))


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
