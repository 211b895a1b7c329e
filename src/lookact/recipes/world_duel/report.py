"""What world-duel shows: pictures and films of what was foreseen beside what came, and a line of numbers a step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch

from lookact.data.lerobot.video import write_video
from lookact.data.sequences import Recording
from lookact.models.world_model.model import WorldModel
from lookact.recipes.world_duel.data import tokenise
from lookact.recipes.world_duel.update import remember_all, scenes, to_film
from lookact.training.distributed import is_main
from lookact.training.trackers import cut_after, finite_or_none
from lookact.types import Image

LINES = "episode_metrics.jsonl"
ENLARGED = 4
SHOWN = 12
"""Frames of an episode's picture."""
FPS = 10


class EpisodeLines:
    """`episode_metrics.jsonl`: one line a step, cut after the step that a resumed run goes on from."""

    def __init__(self, folder: Path, done: int) -> None:
        self.path = folder / LINES
        if is_main():
            cut_after(self.path, done or None)

    def add(self, step: int, phase: str, metrics: Mapping[str, float]) -> None:
        if is_main():
            numbers = {name: finite_or_none(value) for name, value in metrics.items()}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": step, "phase": phase} | numbers) + "\n")


@torch.no_grad()
def imagined_frames(world: WorldModel, recording: Recording, *, stride: int) -> Image:
    """(t, h, w, 3) of a recording's first row, each frame foreseen from those before it."""
    film = to_film(world, tokenise(world, [recording])[[0]])
    times = torch.arange(film.steps)
    scene, action = scenes(world, film, times, remember_all(world, film)[:, :-1], stride=stride)
    frames: Image = world.vq.decode(world.imagine(scene, action)).cpu().numpy()
    return frames


def show_foresight(world: WorldModel, recording: Recording, folder: Path, number: int, *, stride: int) -> Image:
    """`samples/episode_N.png` (truth over prediction) and `videos/episode_N.mp4` (head | true wrist | predicted)."""
    imagined = imagined_frames(world, recording, stride=stride)
    truth, head = recording.wrist[0, 1:], recording.head[0, 1:]
    picture = enlarge(np.concatenate([strip(truth), strip(imagined)], axis=0))
    (folder / "samples").mkdir(exist_ok=True)
    PIL.Image.fromarray(picture).save(folder / "samples" / f"episode_{number}.png")
    sides = np.concatenate([head, truth, imagined], axis=2)
    write_video(folder / "videos" / f"episode_{number}.mp4", (enlarge(frame) for frame in sides), fps=FPS)
    return picture


def strip(frames: Image) -> Image:
    """Up to `SHOWN` frames of (t, h, w, 3), spread over the episode, side by side."""
    chosen = np.linspace(0, len(frames) - 1, min(SHOWN, len(frames))).round().astype(int)
    return np.concatenate(list(frames[chosen]), axis=1)


def enlarge(picture: Image) -> Image:
    """Every pixel as a block of them."""
    return picture.repeat(ENLARGED, axis=0).repeat(ENLARGED, axis=1)


def flat_metrics(report: Mapping[str, Any], prefix: str = "eval") -> dict[str, float]:
    """A report's numbers under one prefix, groups joined to their names; intervals are left out."""
    found: dict[str, float] = {}
    for name, value in report.items():
        if name == "ci":
            continue
        if isinstance(value, Mapping):
            inner = flat_metrics(value, "")
            found |= {f"{prefix}/{name}_{key.removeprefix('/')}": number for key, number in inner.items()}
        else:
            found[f"{prefix}/{name}"] = float(value)
    return found
