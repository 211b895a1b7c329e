"""Train a recipe. The run folder is OUT/RECIPE/NAME; what is saved there is enough to continue bit for bit."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lookact.cli.launch import is_launched, launch, to_launch
from lookact.cli.output import SECONDS, is_first, say, show_log, show_result, write_json
from lookact.cli.parser import Arguments, Parser, positive_int
from lookact.cli.recipe_sources import short_name
from lookact.cli.recipes import (
    PRESET,
    add_recipe_options,
    check_start,
    load_recipe,
    load_settings,
    make_config,
    recall_recipe,
    recipe_title,
    refuse_foreign,
    show_help,
    source_of,
)
from lookact.config import to_mapping
from lookact.errors import ConfigError, DataError
from lookact.training.preflight import Job, need_package
from lookact.training.run_files import (
    LEVELS,
    METRICS,
    RESULT,
    drop_refused,
    holds_run,
    read_origin,
    refuse_second_run,
    saved_config,
)

TAKES_SETTINGS = True
EXAMPLES = (
    "lookact train nav-rloo --preset debug",
    "lookact train rloo --task frozen-lake",
    "lookact train nav-rloo --processes 2",
    "lookact train nav-rloo --name warm --seed 3 --learn.lr 1e-4",
    "lookact train nav-rloo --config my.yaml --auto-resume",
    "lookact train my_recipe.py --seed 3",
    "lookact train runs/nav-rloo/small-seed0 --learn.iterations 200",
    "lookact train vla-ppo --stage ppo --checkpoint runs/vla-ppo/small-seed0/warm_start --name again",
)


def add_options(parser: Parser) -> None:
    add_recipe_options(parser)
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("runs"), help="where runs are kept (default: runs)"
    )
    parser.add_argument("--name", metavar="N", help="the run's name (default: PRESET-seedSEED, or FILE-seedSEED)")
    parser.add_argument(
        "--processes", metavar="N", type=positive_int, default=1, help="that train together, one thread each on a CPU"
    )
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--resume", metavar="PATH", type=Path, help="continue from this checkpoint or run folder")
    again.add_argument("--auto-resume", action="store_true", help="continue the run of this name if it was begun")
    parser.add_argument(
        "--wandb", choices=("off", "offline", "online"), default="off", help="log to Weights & Biases too"
    )
    level: dict[str, Any] = {"metavar": "LEVEL", "type": str.lower, "choices": LEVELS}
    levels = ", ".join(LEVELS)
    parser.add_argument(
        "--console-level", **level, default="info", help=f"least log level shown: {levels} (default: info)"
    )
    parser.add_argument(
        "--file-level", **level, default="debug", help="least log level kept in training.log (default: debug)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    if show_help(parser, arguments):
        return
    cfg, folder, result = train_from(arguments, words, parser)
    if is_launched():
        return
    seed = f", seed {cfg.seed}" if hasattr(cfg, "seed") else ""
    show_result(result, as_json=arguments.json, title=f"{recipe_title(arguments.recipe, cfg)}{seed}")
    if not arguments.json:
        say(f" the run is in {folder}")
        say(f" in the browser: lookact view {folder}")


def train_from(arguments: Arguments, words: Sequence[str], parser: Parser) -> tuple[Any, Path, dict[str, Any]]:
    """Train as a command line says: the config, the run folder and the result."""
    recall_recipe(arguments)
    load_settings(arguments.recipe)
    resume = arguments.resume
    if resume is not None:
        refuse_foreign(resume, short_name(arguments.recipe), "train")
    begun = _begun(arguments)
    cfg = make_config(arguments, words, parser=parser, saved=None if begun is None else saved_config(begun))
    folder = run_folder(arguments, cfg)
    how = {"resume": resume, "auto_resume": arguments.auto_resume, "wandb": arguments.wandb}
    how |= {"console_level": arguments.console_level, "file_level": arguments.file_level}
    result = train_together(
        arguments.recipe,
        cfg,
        folder,
        processes=arguments.processes,
        words=arguments.words,
        origin=origin_of(arguments, begun),
        **how,
    )
    return cfg, folder, result


def train_together(
    recipe: str,
    cfg: Any,
    folder: Path,
    *,
    processes: int,
    words: Sequence[str],
    origin: Mapping[str, Any],
    **how: Any,
) -> dict[str, Any]:
    """Train in this process, or start as many as are wanted with the command line `words`; returns the result."""
    if is_first():
        if not (how.get("resume") or how.get("auto_resume")):
            refuse_second_run(folder)
        if how.get("wandb", "off") != "off":
            need_package("wandb", f"--wandb {how['wandb']}", instead="leave it off with --wandb off")
    begun = how.get("resume") or (folder if how.get("auto_resume") and holds_run(folder) else None)
    # under torchrun the number of processes is not ours to say
    together = int(os.environ.get("WORLD_SIZE", processes))
    check_start(recipe, cfg, Job("train", folder, resume=begun, processes=together))
    if not to_launch(processes):
        return train(recipe, cfg, folder, origin=origin, **how)
    launch(words, processes)
    result: dict[str, Any] = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    return result


def train(
    recipe: str, cfg: Any, folder: Path, *, origin: Mapping[str, Any], console_level: str = "info", **how: Any
) -> dict[str, Any]:
    """Train in a run folder, with the other processes if there are any; `how` is as in `open_run`."""
    module = load_recipe(recipe)
    from lookact.training.distributed import close_distributed, init_distributed
    from lookact.training.run import open_run

    show_log(console_level)
    init_distributed()
    new = is_first() and not folder.exists()
    try:
        known = {"recipe": short_name(recipe), **source_of(recipe), **origin}
        with open_run(folder, to_mapping(cfg), origin=known, **how) as run:
            # a recipe from outside may have nothing to say
            result = module.main(cfg, run) or {}
            if is_first():
                if SECONDS in result:
                    result[SECONDS]["training steps"] = step_seconds(run.folder)
                write_json(result, folder / RESULT)
            return result
    except (ConfigError, DataError):
        if new:
            drop_refused(folder)
        raise
    finally:
        close_distributed()


def step_seconds(folder: Path) -> float:
    """What a run's steps took, by its own metrics: those before it was last resumed count too."""
    lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    return float(sum(value for step in steps for name, value in step.items() if name.startswith("time/") and value))


def run_folder(arguments: Arguments, cfg: Any) -> Path:
    """Where the run lives; a resumed one stays where it was unless it is given a name."""
    if arguments.name is not None and (Path(arguments.name).name != arguments.name or arguments.name in ("", "..")):
        raise ConfigError(f"--name {arguments.name}: a name is that of one folder; --out says where it lies")
    saved = saved_config(arguments.resume) if arguments.resume and not arguments.name else None
    if saved is not None:
        return saved.parent
    start = arguments.preset or (arguments.config.stem if arguments.config else PRESET)
    if (task := getattr(cfg, "task", None)) != getattr(load_settings(arguments.recipe).Config, "task", None):
        start = f"{re.sub('[^A-Za-z0-9_.-]+', '-', str(task))}-{start}"
    seed = f"-seed{cfg.seed}" if hasattr(cfg, "seed") else ""
    return Path(arguments.out, short_name(arguments.recipe), arguments.name or f"{start}{seed}")


def origin_of(arguments: Arguments, begun: Path | None) -> dict[str, Any]:
    """What the run's settings began with: the preset and the file that were named, or those of the run it goes on."""
    if begun is not None and not arguments.preset and (known := read_origin(begun)):
        return {name: known.get(name) for name in ("preset", "config")}
    # a file alone may well say everything: nobody chose a preset then
    preset = arguments.preset or (None if arguments.config else PRESET)
    return {"preset": preset, "config": str(arguments.config) if arguments.config else None}


def _begun(arguments: Arguments) -> Path | None:
    """What this run goes on from, as far as the command line says by name: its config is kept."""
    if arguments.auto_resume and arguments.name:
        return Path(arguments.out, short_name(arguments.recipe), arguments.name)
    return Path(arguments.resume) if arguments.resume else None
