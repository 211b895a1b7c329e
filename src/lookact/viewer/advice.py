"""What to do about a run of which no episodes were kept: a command that works for its recipe."""

from __future__ import annotations

import shlex
from pathlib import Path

from lookact.viewer.places import inside

IMITATING = ("nav-rloo", "vqa-ppo", "vla-ppo")
"""Recipes whose supervised start is a policy already."""
WEIGHTS = "*.safetensors"


def advise(root: Path, place: str, recipe: str, status: str) -> dict[str, str]:
    """A sentence and a command; none while the run is still to keep its first episodes."""
    if status == "running":
        return {"text": "No episodes yet: a run keeps a few of each evaluation.", "command": ""}
    folder = inside(root, place)
    checkpoint = find_checkpoint(folder, recipe)
    if checkpoint is None:
        text = "This run kept no episodes and left no checkpoint. A random policy's can be looked at:"
        return {"text": text, "command": f"lookact eval {recipe} --preset debug --dummy --episodes 4"}
    shown = shown_path(folder)
    command = f"lookact eval {recipe} --checkpoint {shown}/{checkpoint} --episodes 8 --out {shown}/eval"
    return {"text": "This run kept no episodes. Its policy makes some in", "command": command}


def find_checkpoint(folder: Path, recipe: str) -> str | None:
    """The name of the folder of a run's weights that is most worth looking at."""
    numbered = sorted(folder.glob("checkpoint-*"), key=lambda path: (len(path.name), path.name), reverse=True)
    start = [folder / "warm_start"] if recipe in IMITATING else []
    for path in [folder / "best", *numbered, *start]:
        if path.is_dir() and next(path.rglob(WEIGHTS), None) is not None:
            return path.name
    return None


def shown_path(folder: Path) -> str:
    """A path as one would write it in the shell that the viewer was started from."""
    here = Path.cwd()
    return shlex.quote(str(folder.relative_to(here) if folder.is_relative_to(here) else folder))
