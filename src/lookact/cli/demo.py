"""The main job, from nothing: a tiny vision-language model learns to navigate rooms, on two CPU cores.

It is `lookact train nav-rloo --preset small` in a new run folder.
"""

from __future__ import annotations

import time
from pathlib import Path

from lookact.cli.output import say, show_result
from lookact.cli.parser import Arguments, Parser
from lookact.cli.recipes import PRESET, load_recipe, preset_of
from lookact.cli.train import train
from lookact.train.config import check, override

EXAMPLES = ("lookact demo", "lookact demo --seed 1")
RECIPE = "nav-rloo"


def add_options(parser: Parser) -> None:
    parser.add_argument("--preset", metavar="NAME", default=PRESET, help=f"debug or small (default: {PRESET})")
    parser.add_argument("--seed", metavar="N", help="seeds everything (default: the preset's)")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("runs"), help="where runs are kept (default: runs)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    recipe = load_recipe(RECIPE)
    seed = [] if arguments.seed is None else [f"--seed={arguments.seed}"]
    cfg = check(override(preset_of(recipe, RECIPE, arguments.preset), seed))
    folder = arguments.out / RECIPE / time.strftime("demo-%Y%m%d-%H%M%S")
    result = train(recipe, cfg, folder)
    show_result(result, as_json=arguments.json, title=f"{RECIPE}, seed {cfg.seed}")
    curve = draw_curve(folder)
    if not arguments.json:
        say(f"drew {curve}")
        say(f"everything is in {folder}")


def draw_curve(folder: Path) -> Path:
    """The run's success over training, as a picture in its folder."""
    from lookact.plots.learning_curve import draw_learning_curve, read_metrics
    from lookact.plots.style import save_figure

    curves = {RECIPE: [read_metrics(folder, "eval/success_rate")]}
    figure = draw_learning_curve(curves, title="On rooms never trained on", x_label="step", y_label="success rate")
    path = folder / "plots" / "learning_curve.png"
    path.parent.mkdir(exist_ok=True)
    save_figure(figure, path)
    return path
