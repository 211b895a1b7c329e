"""A tiny vision-language model learns to navigate rooms, from nothing, on two CPU cores in a few minutes.

It is `lookact train nav-rloo` with fewer updates, in a new run folder, measured beside a random policy and drawn while
it learns. With --watch nothing is trained: a checkpoint that comes with lookact acts in rooms it never saw, shown turn
by turn in the terminal and kept as a sheet and as a page for the browser.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookact.cli.demo_pictures import AFTER, BEFORE, RANDOM, STORES, Pictures
from lookact.cli.demo_plan import next_commands, own_name, plan_lines
from lookact.cli.launch import cores
from lookact.cli.output import say, show_log, show_result
from lookact.cli.parser import Arguments, Parser, positive_int
from lookact.cli.recipes import PRESET, load_recipe, load_settings, preset_of
from lookact.cli.train import train_together
from lookact.cli.watch import ROOMS, watch
from lookact.config import check, override
from lookact.errors import ConfigError

if TYPE_CHECKING:
    from lookact.protocols import Recipe

EXAMPLES = (
    "lookact demo --watch",
    "lookact demo",
    "lookact demo --preset debug --processes 1",
    "lookact demo --watch --checkpoint runs/nav-rloo/small-seed0/best --episodes 8 --open",
)
RECIPE = "nav-rloo"
SHORTER = ("--learn.iterations=50", "--evaluation.every=10", "--evaluation.final_episodes=192")
"""What the demo changes of the preset `small`, so that it ends within minutes and its gain still shows."""
TRAINING, WATCHING = ("preset", "processes", "json"), ("checkpoint", "episodes", "open")


def add_options(parser: Parser) -> None:
    add = parser.add_argument
    add("--seed", metavar="N", help="seeds everything; with --watch, other rooms (default: the preset's)")
    add("--out", metavar="DIR", type=Path, default=Path("runs"), help="where runs are kept (default: runs)")
    add(
        "--preset", metavar="NAME", help=f"debug, or {PRESET} at its full length (default: {PRESET} with fewer updates)"
    )
    add("--processes", metavar="N", type=positive_int, help="that train together (default: 2, or 1 on a single core)")
    add("--json", action="store_true", help="print the result as one JSON object")
    add = parser.add_argument_group("watching, without any training").add_argument
    add("--watch", action="store_true", help="a checkpoint acts in rooms it never saw, shown turn by turn")
    add("--checkpoint", metavar="PATH", type=Path, help="which one (default: one that comes with lookact)")
    add("--episodes", metavar="N", type=positive_int, help=f"in how many rooms (default: {ROOMS})")
    add("--open", action="store_true", help="open the page with these episodes in the browser")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    for option in TRAINING if arguments.watch else WATCHING:
        if getattr(arguments, option):
            raise ConfigError(
                f"--{option} goes {'without' if arguments.watch else 'with'} --watch: leave one of them out"
            )
    if arguments.watch:
        watch(arguments)
    else:
        train_and_draw(arguments)


def train_and_draw(arguments: Arguments) -> None:
    """The whole demo: say what comes, measure a random policy, train, draw all along, compare."""
    began = time.perf_counter()
    preset, shorter = arguments.preset or PRESET, [] if arguments.preset else list(SHORTER)
    seed = [] if arguments.seed is None else [f"--seed={arguments.seed}"]
    cfg = check(override(preset_of(load_settings(RECIPE), RECIPE, preset), [*shorter, *seed]))
    name = time.strftime("demo-%Y%m%d-%H%M%S")
    folder, processes = arguments.out / RECIPE / name, arguments.processes or min(2, cores())
    if not arguments.json:
        say("\n".join(plan_lines(cfg, folder, processes)))
        sys.stdout.flush()

    # the yardstick
    show_log()
    random = measure_random(load_recipe(RECIPE), cfg, folder)
    pictures = Pictures(
        folder, iterations=cfg.learn.iterations, random_rate=random["success_rate"], tell=teller(processes)
    )
    pictures.refresh()

    # warm start, RL and evaluation, drawn all along
    again = ["train", RECIPE, "--preset", preset, *shorter, *seed, "--out", str(arguments.out), "--name", name]
    debug = [word for word in arguments.words if word == "--debug"]
    with pictures:
        trained = train_together(
            RECIPE, cfg, folder, processes=processes, words=again + debug, origin={"preset": preset}
        )
    pictures.refresh()

    # side by side
    result = {
        RANDOM: {"sampled": random},
        BEFORE: trained["before"],
        AFTER: trained["after"],
        "seconds": trained["seconds"],
    }
    result["seconds"]["the rest"] = time.perf_counter() - began - sum(result["seconds"].values())
    if arguments.json:
        say(json.dumps({**result, "pictures": list(map(str, pictures.paths)), "folder": str(folder)}))
        return
    rooms = f"{cfg.evaluation.final_episodes} rooms never seen in training"
    show_result(result, as_json=False, title=f"{RECIPE}, seed {cfg.seed}, in {rooms}")
    tell_what_is_there(folder, pictures, preset, processes)


def measure_random(recipe: Recipe, cfg: Any, folder: Path) -> dict[str, Any]:
    """What chance alone reaches in the rooms of the final evaluation; its episodes are kept."""
    place = folder / Path(STORES[RANDOM]).parent
    place.mkdir(parents=True, exist_ok=True)
    episodes = max(1, cfg.evaluation.final_episodes)
    return recipe.evaluate(cfg, checkpoint=None, episodes=episodes, greedy=False, dummy=True, folder=place)


def teller(processes: int) -> Callable[[str], None]:
    """Says a line while progress bars are drawn, by this process or by another one on the same terminal."""
    from lookact.training.progress import CONSOLE

    def tell(line: str) -> None:
        if processes > 1 and CONSOLE.is_terminal:
            # another process's bar stands on this line: it is drawn again below
            CONSOLE.file.write("\r\x1b[2K")
        CONSOLE.print(line, markup=False, highlight=False, soft_wrap=True)

    return tell


def tell_what_is_there(folder: Path, pictures: Pictures, preset: str, processes: int) -> None:
    """Where the pictures are, and what to do next."""
    say(" pictures:")
    for path in pictures.paths:
        say(f"   {path}")
    say(f" everything else is in {folder}")
    say(" try next:")
    for command, purpose in next_commands(folder, preset, processes):
        say(f"   {own_name()} {command}  # {purpose}")
