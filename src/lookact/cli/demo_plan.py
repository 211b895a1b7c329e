"""What the demo is about to do and how long that takes, and what to try after it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lookact.cli.demo_pictures import AFTER, BEFORE, CURVE, RANDOM, sheet_name

START = 11.0
"""Seconds in which a process loads torch and transformers."""
RANDOM_EPISODE, EPISODE, EPISODE_LEARNED = 0.07, 0.03, 0.015
ROOM_RENDERED, ROOM_LEARNED = 0.024, 0.0083
DEMONSTRATION, DEMONSTRATION_LEARNED = 0.048, 0.0176
"""Seconds of one core of an AMD EPYC with the tiny model; a room or a demonstration is learned once an epoch."""


@dataclass(frozen=True)
class Phase:
    """A part of the demo: what is done, about how many seconds it takes, and the picture it leaves."""

    name: str
    seconds: float
    picture: str


def phases(cfg: Any, processes: int) -> list[Phase]:
    """The demo's parts on as many idle cores as there are processes."""
    vision, sft, learn, evaluation = cfg.vision_pretraining, cfg.sft, cfg.learn, cfg.evaluation
    rooms = vision.rooms * (ROOM_RENDERED + vision.epochs * ROOM_LEARNED)
    demonstrations = sft.demonstrations * (DEMONSTRATION + sft.epochs * DEMONSTRATION_LEARNED)
    final = 2 * evaluation.final_episodes * EPISODE
    episodes = learn.iterations * learn.groups * learn.group_size * (EPISODE + EPISODE_LEARNED)
    validation = learn.iterations // evaluation.every * evaluation.episodes * EPISODE
    return [
        Phase(
            f"a random policy in {evaluation.final_episodes} rooms, as a yardstick",
            START + evaluation.final_episodes * RANDOM_EPISODE,
            sheet_name(RANDOM),
        ),
        Phase(
            f"vision pretraining, then SFT on {sft.demonstrations} demonstrations",
            START + (rooms + demonstrations + final) / processes,
            sheet_name(BEFORE),
        ),
        Phase(
            f"RL: {learn.iterations} iterations of REINFORCE leave-one-out (RLOO)",
            (episodes + validation) / processes,
            f"{CURVE}, redrawn as it learns",
        ),
        Phase(
            f"evaluation in {evaluation.final_episodes} rooms never seen in training",
            final / processes,
            sheet_name(AFTER),
        ),
    ]


def plan_lines(cfg: Any, folder: Path, processes: int) -> list[str]:
    """What is said before anything is done."""
    parts = phases(cfg, processes)
    cores = "one CPU core" if processes == 1 else f"{processes} CPU cores"
    width = max(len(part.name) for part in parts)
    return [
        "A vision-language model of 0.7 M parameters learns to walk to things in 3D rooms, from nothing.",
        f"On {cores} with nothing else to do it takes {spoken_time(sum(part.seconds for part in parts))}. "
        "Nothing is downloaded, nothing opens.",
        "",
        *(
            f"  {number}. {part.name:<{width}}  {spoken_time(part.seconds):>14}  {part.picture}"
            for number, part in enumerate(parts, 1)
        ),
        "",
        f"Pictures: {folder / 'plots'}",
        "",
    ]


def spoken_time(seconds: float) -> str:
    """About how long, in steps that promise no more than is known."""
    if seconds < 100:
        return f"about {max(10, 10 * round(seconds / 10))} s"
    minutes = round(seconds / 30) / 2
    return f"about {minutes:g} min"


def next_commands(folder: Path, preset: str, processes: int) -> list[tuple[str, str]]:
    """Three commands to try after a demo in `folder`, each with what it is for."""
    served = all(importlib.util.find_spec(name) for name in ("fastapi", "uvicorn"))
    page = "" if served else f" --out {folder / 'view.html'}"
    together = f" --processes {processes}" if processes > 1 else ""
    return [
        (f"demo --watch --checkpoint {folder / 'best'}", "watch what it has learned, turn by turn"),
        (f"view {folder}{page}", "curves, results and episodes in the browser"),
        (f"train nav-rloo --preset {preset}{together} --name whole", "the preset at its full length"),
    ]


def own_name() -> str:
    """How this `lookact` is called from the present folder."""
    script = Path(sys.argv[0])
    found = shutil.which("lookact")
    if script.name != "lookact":
        return f"{_near(Path(sys.executable))} -m lookact"
    return "lookact" if found and Path(found).resolve() == script.resolve() else str(_near(script))


def _near(path: Path) -> Path:
    """The path as seen from here, if it lies below."""
    near = Path(os.path.relpath(path))
    return path if near.parts[0] == ".." else near
