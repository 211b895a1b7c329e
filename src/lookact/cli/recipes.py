"""Finds a recipe by name, makes its config from a preset, a file and the words of the command line, and says whose the
checkpoints and run folders are that a command line names."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import yaml

from lookact.cli.output import is_first, show_log, show_settings
from lookact.cli.parser import Arguments, Parser, option_names
from lookact.cli.recipe_sources import RECIPES, load_outside, offered, outside_place, outside_settings, short_name
from lookact.config import check, load_config, override, settings, with_group
from lookact.config.aliases import current_setting, renew_words
from lookact.config.safe_yaml import load_yaml
from lookact.config.values import unknown
from lookact.errors import ConfigError, DataError
from lookact.extras import pip_install_for
from lookact.tasks.registry import find_task
from lookact.training.preflight import Job
from lookact.training.run_files import METRICS, read_origin, saved_config

if TYPE_CHECKING:
    from lookact.protocols import Recipe, RecipeSettings

FOLDERS = {"rloo": "nav-rloo", "ppo": "vqa-ppo"}
"""Algorithms by the names of their folders, each on the task that it comes with."""
PRESET = "small"
"""What a recipe runs unless told otherwise: learns for real on two CPU cores."""
TASK_SETTINGS = ("task", "env.task", "env.name")
"""By which of these a recipe's task is named: those of vision-language models, of control, of world models."""
PARTS = {
    "eval": "evaluate(cfg, *, checkpoint, episodes, greedy, dummy, folder)",
    "collect": "collect(cfg, *, checkpoint, episodes, out)",
}
"""What a command asks of a recipe; one from outside may lack it."""


def add_recipe_options(parser: Parser) -> None:
    """The options every command about a recipe has. Words it does not know are settings of the recipe."""
    known = f"{', '.join(known_recipes())}, or one of your own: FILE.py or a module"
    parser.add_argument("recipe", metavar="RECIPE", nargs="?", type=recipe_name, help=known)
    parser.add_argument(
        "--preset", metavar="NAME", help=f"debug, small, full; nav-rloo and vqa-ppo also 2b, 4b (default: {PRESET})"
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="a YAML or JSON file that lies over the preset")
    parser.add_argument("--seed", metavar="N", help="seeds everything")
    parser.add_argument("-h", "--help", action="store_true", help="this text; with RECIPE, also all its settings")
    parser.add_argument_group(
        "settings", "Any setting of the recipe by its dotted name: --learn.lr 1e-4, --flag, --no-flag"
    )


def known_recipes() -> list[str]:
    """LookAct's own, and those that other installed packages offer."""
    return list(dict.fromkeys([*RECIPES, *offered()]))


def recipe_name(word: str) -> str:
    """A recipe's name, also by its folder's."""
    return FOLDERS.get(word, word)


def recipe_title(recipe: str, cfg: Any) -> str:
    """What a result stands under: the recipe's name, or the algorithm and the task where that is another."""
    task, own = (getattr(config, "task", None) for config in (cfg, load_settings(recipe).PRESETS[PRESET]))
    algorithm = {name: folder for folder, name in FOLDERS.items()}.get(recipe, short_name(recipe))
    return short_name(recipe) if task == own else f"{algorithm} on {task}"


def show_help(parser: Parser, arguments: Arguments) -> bool:
    """Whether help was asked for, and given."""
    if arguments.help:
        parser.print_help()
        if arguments.recipe:
            preset = preset_of(load_settings(arguments.recipe), arguments.recipe, arguments.preset)
            show_settings(
                settings(preset), title=f"settings of {arguments.recipe}, preset {arguments.preset or PRESET}"
            )
    return bool(arguments.help)


def load_settings(name: str | None) -> RecipeSettings:
    """A recipe's settings, by the recipe's name; those of LookAct's own load at once."""
    if name in RECIPES:
        loaded: Any = importlib.import_module(_beside(name, "config"))
    elif name:
        loaded = outside_settings(name, _outside(name), PRESET)
    else:
        raise ConfigError(f"no recipe named: choose one of {', '.join(known_recipes())}")
    return loaded  # type: ignore[no-any-return]


def check_start(name: str, cfg: Any, job: Job) -> None:
    """Refuse what could not work, before the recipe is loaded; of several processes the first speaks for all."""
    if is_first():
        own = name in RECIPES
        checks: Any = importlib.import_module(_beside(name, "preflight")) if own else load_recipe(name)
        if hasattr(checks, "preflight"):
            checks.preflight(cfg, job)


def load_recipe(name: str) -> Recipe:
    """A recipe's module by its name, with torch and all else it works with: for when the work begins."""
    if name not in RECIPES:
        return load_outside(name, _outside(name))  # type: ignore[no-any-return]
    try:
        recipe: Any = importlib.import_module(RECIPES[name])
    except ModuleNotFoundError as error:
        if str(error.name).startswith("lookact."):
            raise
        remedy = pip_install_for(str(error.name))
        raise ConfigError(f"recipe {name} needs the package {error.name}: {remedy}") from error
    return recipe  # type: ignore[no-any-return]


def source_of(name: str) -> dict[str, str]:
    """For the record of a run: where a recipe from outside is found again. Nothing for LookAct's own."""
    if name in RECIPES:
        return {}
    place = _outside(name)
    return {"source": str(Path(place).resolve()) if place.endswith(".py") else place}


def _outside(name: str) -> str:
    place = outside_place(name)
    if place is None:
        raise unknown("recipe", name, known_recipes())
    if short_name(name) in RECIPES:
        raise ConfigError(f"{name}: LookAct has a recipe {short_name(name)}: rename the file")
    return place


def make_config(arguments: Arguments, words: Sequence[str], *, parser: Parser, saved: Path | None = None) -> Any:
    """A checked config: the preset, or unless it is named the file `saved` of a run, then --config, then the words."""
    recipe = settings_for(load_settings(arguments.recipe), named_task(arguments, words, saved))
    base = preset_of(recipe, arguments.recipe, arguments.preset)
    if saved is not None and not arguments.preset:
        base = load_config(recipe.Config, saved, base, recipe=arguments.recipe)
    if arguments.config is not None:
        base = load_config(recipe.Config, arguments.config, base, recipe=arguments.recipe)
    names = [leaf.name for leaf in settings(recipe.Config)]
    words = name_task(renew_words(arguments.recipe, words), names)
    _refuse_mistyped_options(words, option_names(parser), names)
    seed = [] if arguments.seed is None else [f"--seed={arguments.seed}"]
    return check(override(base, [*words, *seed]))


def named_task(arguments: Arguments, words: Sequence[str], saved: Path | None) -> str | None:
    """The task that the words name, else the file of --config, else that of a run; None: the recipe's own."""
    for word, after in zip(words, [*words[1:], ""]):
        if word == "--task" or word.startswith("--task="):
            return after if word == "--task" else word.partition("=")[2]
    for path in (arguments.config, None if arguments.preset else saved):
        if path is not None and path.is_file():
            content = load_yaml(path.read_text(encoding="utf-8", errors="replace"))
            if isinstance(content, dict) and isinstance(content.get("task"), str):
                return str(content["task"])
    return None


def name_task(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """The words with `--task` as the setting that a control recipe's task is named by."""
    own = next((name for name in TASK_SETTINGS if name in names), "task")
    return [re.sub("^--task(?==|$)", f"--{own}", word) for word in words]


def settings_for(recipe: RecipeSettings, task: str | None) -> RecipeSettings:
    """A recipe's settings for a task: its own as they are, for another one those with that task's environment."""
    if task is None or task == getattr(recipe.Config, "task", task):
        return recipe
    env, algorithm = find_task(task), recipe.Config.__module__.split(".")[-2:][0]
    offered = getattr(env, "presets", {})
    cls = with_group(recipe.Config, "env", env)
    names = {leaf.name for leaf in settings(cls)}
    presets = {}
    for name, preset in recipe.PRESETS.items():
        shared = {field.name: getattr(preset, field.name) for field in dataclasses.fields(preset)}
        base = cls(**{**shared, "task": task, "env": env()})
        own = {**offered.get(name, {}), **offered.get(f"{name} {algorithm}", {})}
        presets[name] = override(base, [f"--{key}={value}" for key, value in own.items() if key in names])
    return SimpleNamespace(Config=cls, PRESETS=presets)


def preset_of(recipe: RecipeSettings, recipe_name: str, name: str | None) -> Any:
    """A recipe's preset by its name."""
    name = name or PRESET
    if name not in recipe.PRESETS:
        raise unknown("preset", name, recipe.PRESETS, of=recipe_name)
    return recipe.PRESETS[name]


def _beside(name: str, part: str) -> str:
    return f"{RECIPES[name].rpartition('.')[0]}.{part}"


def _refuse_mistyped_options(words: Sequence[str], known: Sequence[str], names: Sequence[str]) -> None:
    for word in words:
        option = word.partition("=")[0]
        near = difflib.get_close_matches(option, known, n=1, cutoff=0.85)
        if near and option[2:].replace("-", "_") not in names and not option.startswith("--no-"):
            raise ConfigError(f"unknown option {option}: did you mean {near[0]}?")


def recall_recipe(arguments: Arguments) -> None:
    """Let a run stand in its recipe's place, as in `lookact eval RUN` and `lookact train RUN`: its record names the
    recipe. One from outside may also be named without its place, beside a checkpoint of it."""
    option = "checkpoint" if hasattr(arguments, "checkpoint") else "resume"
    word, path = arguments.recipe, existing(getattr(arguments, option), "checkpoint")
    if word and word not in RECIPES and Path(word).is_dir():
        if path is not None:
            raise ConfigError(f"{word} and --{option} {path} are two runs: name one")
        path = Path(word) if option == "resume" else checkpoint_in(Path(word)) or Path(word)
        setattr(arguments, option, path)
        arguments.recipe = word = None
    record = {} if path is None else read_origin(path)
    name, source = record.get("recipe"), str(record.get("source", ""))
    if word is None and name in RECIPES:
        arguments.recipe = name
    elif source and (word is None or (word == name and outside_place(word) is None)):
        if source.endswith(".py") and not Path(source).is_file():
            remedy = f"name the file where it is now, as in lookact COMMAND FILE.py --{option} {path}"
            raise DataError(f"{path} was trained by {source}, which is there no more: {remedy}")
        arguments.recipe = name if name in offered() else source


def existing(path: Path | None, what: str) -> Path | None:
    """The path, if there is something there."""
    if path is not None and not path.exists():
        raise DataError(f"{what} {path} does not exist: check the path")
    return path


def named_checkpoint(arguments: Arguments, command: str) -> Path | None:
    """The checkpoint that a command is about, if it names one: there, one of this recipe, and no whole run."""
    path = existing(arguments.checkpoint, "checkpoint")
    if path is not None:
        refuse_run_folder(path)
        # with a preset of its own, a recipe may well look at what another one trained
        if not arguments.preset:
            refuse_foreign(path, short_name(arguments.recipe), command)
    return path


def prepare(
    arguments: Arguments, words: Sequence[str], parser: Parser, command: Literal["eval", "collect"], folder: Path
) -> tuple[Recipe, Any, Path | None]:
    """The recipe, its config and the checkpoint that a command names, all checked; its folder is made."""
    checkpoint = named_checkpoint(arguments, command)
    saved = None if checkpoint is None else saved_config(checkpoint)
    cfg = make_config(arguments, words, parser=parser, saved=saved)
    check_start(arguments.recipe, cfg, Job(command, folder, checkpoint))
    recipe = load_recipe(arguments.recipe)
    if not hasattr(recipe, PARTS[command].partition("(")[0]):
        raise ConfigError(f"recipe {short_name(arguments.recipe)} has no {PARTS[command]}: give it one to {command}")
    folder.mkdir(parents=True, exist_ok=True)
    show_log()
    return recipe, cfg, checkpoint


def refuse_foreign(path: Path, recipe: str, command: str) -> None:
    """Refuse what another recipe trained, and say which one takes it."""
    other = trained_by(path, recipe)
    if other not in (None, recipe):
        option = "--resume" if command == "train" else "--checkpoint"
        raise DataError(f"{path} was trained by {other}: use lookact {command} {other} {option} {path}")


def refuse_run_folder(path: Path) -> None:
    """Refuse a whole run where one of its checkpoints is meant."""
    if (path / METRICS).is_file() and not (path / "model.safetensors").exists():
        inside = checkpoint_in(path)
        remedy = f"name one of its checkpoints, such as {inside}" if inside else "it has no checkpoint yet"
        raise DataError(f"{path} is the folder of a run: {remedy}")


def checkpoint_in(run: Path) -> Path | None:
    """The best checkpoint of a run, else its newest; None where it has none, or is a checkpoint itself."""
    newest = sorted(run.glob("checkpoint-*"), key=lambda path: (len(path.name), path.name))[-1:]
    return next((path for path in [run / "best", *newest] if path.is_dir()), None)


def trained_by(path: Path, asked: str) -> str | None:
    """The recipe behind a checkpoint or run folder: as recorded, else by the folder's name, else by its settings.

    Runs from before the record was kept have none. None where nobody can tell.
    """
    recorded = read_origin(path).get("recipe")
    if isinstance(recorded, str):
        return recorded
    for parent in path.absolute().parents[:2]:
        if parent.name in RECIPES:
            return parent.name
    saved = saved_config(path)
    if saved is None or has_settings_of(asked, saved):
        return None
    return next((name for name in RECIPES if has_settings_of(name, saved)), None)


def has_settings_of(recipe: str, saved: Path) -> bool:
    """Whether a recipe has all groups of settings that a config file names."""
    try:
        content = yaml.safe_load(saved.read_text(encoding="utf-8"))
        known = {leaf.name.partition(".")[0] for leaf in settings(load_settings(recipe).Config)}
    except (OSError, ValueError, yaml.YAMLError, ConfigError):
        return False
    return isinstance(content, dict) and {current_setting(recipe, str(name)) for name in content} <= {*known, ""}
