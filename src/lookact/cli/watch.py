"""`lookact demo --watch`: a trained checkpoint acts in rooms it never saw, shown turn by turn in the terminal."""

from __future__ import annotations

import json
import sys
import time
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lookact
from lookact.cli.output import format_value, say, show_log
from lookact.cli.parser import Arguments
from lookact.cli.recipes import PRESET, existing, load_settings
from lookact.cli.view import write_page
from lookact.config import check, load_config, override
from lookact.errors import DataError, ParseError
from lookact.text.actions import MOVE_KEYS, parse_action, reasoning_of
from lookact.training.run_files import saved_config

if TYPE_CHECKING:
    from rich.console import Console

    from lookact.protocols import Env
    from lookact.types import Image, Observation

RECIPE = "nav-rloo"
PRETRAINED = Path(lookact.__file__).parent / "pretrained" / RECIPE
"""The checkpoint that comes with the package; its README tells how it was made."""
RECORD = "record.json"
"""What a packaged checkpoint reached when it was measured."""
ROOMS = 4
PICTURE = 32
"""Characters that a view is wide in the terminal."""
PAUSE = 0.15
"""Seconds between turns on a terminal, for whoever looks on."""
PAGE_MB = 25


def watch(arguments: Arguments) -> None:
    """Act in held-out rooms, show every turn, and leave the episodes, a sheet of them and a page that replays them."""
    checkpoint = existing(arguments.checkpoint, "checkpoint") or PRETRAINED
    folder = arguments.out / RECIPE / time.strftime("watch-%Y%m%d-%H%M%S")
    rooms = arguments.episodes or ROOMS
    who = "A trained vision-language model of 0.7 M parameters" if checkpoint == PRETRAINED else checkpoint
    say(f"{who} acts in {rooms} rooms it never saw.")
    sys.stdout.flush()
    reached = act(checkpoint, folder, rooms=rooms, seed=arguments.seed)
    say(f"\nreached {sum(reached)} of {len(reached)}{on_record(checkpoint)}\n")
    say(f"drew {folder / 'sheet.png'}")
    page = folder / "episodes.html"
    write_page(folder, page, PAGE_MB, checkpoint / "tokenizer.json")
    if arguments.open:
        webbrowser.open(page.resolve().as_uri())
    else:
        say("open the page in any browser: it needs no server and no network")


def act(checkpoint: Path, folder: Path, *, rooms: int, seed: str | None) -> list[bool]:
    """Greedy episodes in the first rooms of the test split, and whether each reached its object."""
    import PIL.Image

    from lookact.data.episode_store import EpisodeStore
    from lookact.plots.episode_sheet import stack_sheets
    from lookact.plots.navigation import draw_one
    from lookact.recipes.rloo.evaluate import open_checkpoint
    from lookact.rollout.collect import collect
    from lookact.rollout.samplers.hf import HFSampler
    from lookact.tasks.navigation import NavigationTask

    show_log()
    cfg = config_of(checkpoint, seed)
    actor = HFSampler(open_checkpoint(cfg, checkpoint), replace(cfg.sampling, greedy=True), system=cfg.instructions)
    task, screen = NavigationTask(cfg.env), open_screen(rooms)
    env = task.make_env()
    store, sheets, reached = EpisodeStore(folder / "episodes"), [], []
    specs = task.specs(cfg.seed, "test", groups=rooms)
    add_map = task.add_floor_map(specs)
    for spec in specs:
        (episode,) = collect([spec], [Watched(env, screen)], actor)
        if episode.error is not None:
            raise DataError(f"the episode in room {spec.id} failed: {episode.error}")
        episode = add_map(episode)
        store.add(episode)
        sheets.append(draw_one(episode))
        reached.append(episode.terminated)
    PIL.Image.fromarray(stack_sheets(sheets)).save(folder / "sheet.png")
    return reached


def config_of(checkpoint: Path, seed: str | None) -> Any:
    """The settings that the checkpoint was trained with; another seed gives other rooms."""
    saved = saved_config(checkpoint)
    if saved is None:
        raise DataError(f"{checkpoint} has no config.yaml: give a checkpoint that lookact train {RECIPE} wrote")
    settings = load_settings(RECIPE)
    cfg = load_config(settings.Config, saved, settings.PRESETS[PRESET], recipe=RECIPE)
    return check(override(cfg, [] if seed is None else [f"--seed={seed}"]))


def on_record(checkpoint: Path) -> str:
    """What this checkpoint, and a random policy, reached in many more rooms, where that was recorded beside it."""
    path = checkpoint / RECORD
    if not path.is_file():
        return ""
    reports = json.loads(path.read_text(encoding="utf-8"))
    mine, chance = (format_value("success_rate", reports[name]["success_rate"]) for name in ("greedy", "random"))
    return f" (on record: {mine} of {reports['greedy']['episodes']} rooms, a random policy {chance})"


@dataclass
class Watched:
    """An environment whose turns are shown as they are taken."""

    env: Env
    screen: Screen
    seen: Observation | None = None

    def reset(self, *, seed: int, options: Mapping[str, Any]) -> tuple[Observation, Mapping[str, Any]]:
        self.seen, info = self.env.reset(seed=seed, options=options)
        self.screen.show_room(info)
        return self.seen, info

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Mapping[str, Any]]:
        before = self.seen
        assert before is not None
        self.seen, reward, terminated, truncated, info = self.env.step(action)
        self.screen.show_turn(next(iter(before.images.values())), str(action), info)
        if terminated or truncated:
            self.screen.show_end(info)
        return self.seen, reward, terminated, truncated, info

    def close(self) -> None:
        self.env.close()


@dataclass
class Screen:
    """The terminal: a picture beside each turn where it has colours, one plain line a turn where it has none."""

    console: Console
    rooms: int
    coloured: bool
    room: int = 0

    def show_room(self, info: Mapping[str, Any]) -> None:
        self.room += 1
        away = f"{info['distance_to_goal']:.1f} m away"
        self._print(f"\nroom {self.room} of {self.rooms}: {info['question']} (the {info['goal']} is {away})", "bold")

    def show_turn(self, view: Image, reply: str, info: Mapping[str, Any]) -> None:
        says, does, then = printable(reasoning_of(reply)), describe_move(reply), describe_effect(info)
        if not self.coloured:
            self._print(f'  turn {info["turn"]:<2}  says "{says}", {does}: {then}')
            return
        from rich.table import Table
        from rich.text import Text

        from lookact.plots.terminal import draw_blocks

        words = Text.assemble(
            (f"\nturn {info['turn']} of {info['max_turns']}\n\n", "dim"),
            (f"“{says}”\n\n", "italic"),
            (f"{does}\n", "bold"),
            then,
        )
        beside = Table.grid(padding=(0, 3))
        beside.add_row(draw_blocks(view, columns=PICTURE), words)
        self.console.print(beside)
        self.console.print()
        time.sleep(PAUSE)

    def show_end(self, info: Mapping[str, Any]) -> None:
        turns = f"{info['turn']} turn{'' if info['turn'] == 1 else 's'}"
        if info["success"]:
            self._print(f"  reached in {turns}, path efficiency (SPL) {info['spl']:.2f}", "bold green")
        else:
            self._print(f"  not reached in {turns}", "bold red")

    def _print(self, text: str, style: str = "") -> None:
        self.console.print(text, style=style if self.coloured else "", soft_wrap=True)


def open_screen(rooms: int) -> Screen:
    """Standard output, with pictures if it can show colours."""
    from rich.console import Console

    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
    return Screen(console, rooms, coloured=console.color_system is not None and not console.no_color)


def printable(text: str) -> str:
    """What a model said, without signs that a terminal would obey."""
    return "".join(sign if sign.isprintable() else "?" for sign in " ".join(text.split()))


def describe_move(reply: str) -> str:
    """The action of a reply, in words; positive rotations turn left."""
    try:
        action = parse_action(reply)
    except ParseError:
        return "no action"
    rotation, forward = (action[key] for key in MOVE_KEYS)
    turn = f"turns {'left' if rotation > 0 else 'right'} {abs(rotation):g} degrees" if rotation else ""
    walk = f"walks {'on' if forward > 0 else 'back'} {abs(forward):g} m" if forward else ""
    return ", ".join(part for part in (turn, walk) if part) or "stays"


def describe_effect(info: Mapping[str, Any]) -> str:
    """What came of an action."""
    if info["success"]:
        return "arrived"
    moved = "not understood" if not info["valid_action"] else "blocked" if info["collided"] else "done"
    return f"{moved}, {info['distance_to_goal']:.1f} m to go"
