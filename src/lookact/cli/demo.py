"""The main job, from nothing: a tiny vision-language model learns to navigate rooms, on two CPU cores.

It is `lookact train nav-rloo --preset small` in a new run folder, measured beside a random policy and drawn.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from lookact.cli.launch import cores
from lookact.cli.output import say, show_log
from lookact.cli.parser import Arguments, Parser, at_least_one
from lookact.cli.recipes import PRESET, Recipe, load_recipe, load_settings, preset_of
from lookact.cli.results import show_result
from lookact.cli.train import train_together
from lookact.config import check, override

EXAMPLES = ("lookact demo", "lookact demo --seed 1", "lookact demo --preset debug")
RECIPE = "nav-rloo"
LOOKED_AT = 20
"""Episodes of the trained policy from which those on the sheet are chosen."""


def add_options(parser: Parser) -> None:
    parser.add_argument("--preset", metavar="NAME", default=PRESET, help=f"debug or small (default: {PRESET})")
    parser.add_argument("--seed", metavar="N", help="seeds everything (default: the preset's)")
    parser.add_argument(
        "--processes", metavar="N", type=at_least_one, help="that train together (default: 2, or 1 on a single core)"
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("runs"), help="where runs are kept (default: runs)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    began = time.perf_counter()
    seed = [] if arguments.seed is None else [f"--seed={arguments.seed}"]
    cfg = check(override(preset_of(load_settings(RECIPE), RECIPE, arguments.preset), seed))
    name = time.strftime("demo-%Y%m%d-%H%M%S")
    folder = arguments.out / RECIPE / name
    again = ["train", RECIPE, "--preset", arguments.preset, *seed, "--out", str(arguments.out), "--name", name]
    if not arguments.json:
        say(f"{RECIPE}, preset {arguments.preset}: learn to see, imitate, reinforce, measure; all goes to {folder}")
    debug = [word for word in arguments.words if word == "--debug"]
    processes = arguments.processes or min(2, cores())
    trained = train_together(RECIPE, cfg, folder, processes=processes, words=again + debug)
    recipe = load_recipe(RECIPE)
    show_log()
    result = compared(recipe, cfg, trained)
    pictures = draw(recipe, cfg, folder, result)
    result["seconds"]["starting and drawing"] = time.perf_counter() - began - sum(result["seconds"].values())
    if arguments.json:
        say(json.dumps({**result, "pictures": list(map(str, pictures)), "folder": str(folder)}))
        return
    episodes = cfg.evaluation.final_episodes
    show_result(result, as_json=False, title=f"{RECIPE}, seed {cfg.seed}, on {episodes} starts in rooms never seen")
    for picture in pictures:
        say(f" drew {picture}")
    say(f" everything is in {folder}")
    say(f" in the browser: lookact view {folder}")


def compared(recipe: Recipe, cfg: Any, trained: dict[str, Any]) -> dict[str, Any]:
    """The training's result beside that of a random policy, and how long everything took."""
    with tempfile.TemporaryDirectory() as unused:
        began = time.perf_counter()
        random = recipe.evaluate(
            cfg,
            checkpoint=None,
            episodes=cfg.evaluation.final_episodes,
            greedy=False,
            dummy=True,
            folder=Path(unused),
        )
    return {
        "random": {"sampled": random},
        "warm start": trained["before"],
        "after RL": trained["after"],
        "seconds": {**trained["seconds"], "the random policy": time.perf_counter() - began},
    }


def draw(recipe: Recipe, cfg: Any, folder: Path, result: dict[str, Any]) -> list[Path]:
    """The learning curve, and a sheet of episodes of the policy as training left it."""
    from lookact.cli.nav_pictures import draw_curve, draw_sheet
    from lookact.train.checkpoint import latest_checkpoint

    curve, sheet, measured = folder / "plots/learning_curve.png", folder / "plots/episodes.png", folder / "eval"
    marks = [(name, result[name]["sampled"]["success_rate"]) for name in ("warm start", "random")]
    draw_curve(folder, curve, marks=marks)
    measured.mkdir(exist_ok=True)
    recipe.evaluate(
        cfg, checkpoint=latest_checkpoint(folder), episodes=LOOKED_AT, greedy=True, dummy=False, folder=measured
    )
    draw_sheet(measured / "episodes", sheet)
    return [curve, sheet]
