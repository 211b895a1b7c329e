"""What the commands write: lines, logs, files and pictures. Results are shown by `results`."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookact.config import Setting
from lookact.errors import ConfigError

if TYPE_CHECKING:
    from lookact.types import Image


def is_first() -> bool:
    """Whether this is the first of several processes, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def say(text: str) -> None:
    """One line to standard output, from the first of several processes."""
    if is_first():
        sys.stdout.write(text + "\n")


def show_log() -> None:
    """What the library tells about its work goes to standard error, above the progress bars."""
    from rich.logging import RichHandler

    from lookact.training.progress import CONSOLE

    handler: logging.Handler = logging.StreamHandler()
    if CONSOLE.is_terminal:
        handler = RichHandler(console=CONSOLE, show_path=False, show_level=False)
    handler.setLevel(logging.INFO if is_first() else logging.WARNING)
    package = logging.getLogger("lookact")
    package.handlers = [kept for kept in package.handlers if kept.name != "screen"]
    handler.name = "screen"
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    _hush_transformers()


def write_json(result: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2, default=str) + "\n", encoding="utf-8")


def save_picture(picture: Image, path: Path) -> None:
    """Write a picture, by the path's suffix, and say so."""
    import PIL.Image

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        PIL.Image.fromarray(picture).save(path)
    except ValueError as error:
        raise ConfigError(f"cannot write {path} as a picture: name it .png or .jpg") from error
    say(f"drew {path}")


def show_settings(leaves: Iterable[Setting], *, title: str) -> None:
    """Every setting of a config: how it is written, its value, its type and what it does."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("setting", "value", "takes", "", title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.columns[0].no_wrap = True
    for leaf in leaves:
        value = ",".join(map(str, leaf.value)) if isinstance(leaf.value, tuple) else str(leaf.value)
        table.add_row(*map(Text, (f"--{leaf.name}", value, leaf.type, leaf.help)))
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 140).print(table)


def _hush_transformers() -> None:
    """Its bars for reading and writing weights tear ours; those of downloads stay."""
    if "transformers" in sys.modules:
        from huggingface_hub.utils.tqdm import enable_progress_bars
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        enable_progress_bars()
