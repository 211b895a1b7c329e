"""What the commands write: results as a table for people, or as one JSON object for programs."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookact.errors import ConfigError
from lookact.train.config import Setting

if TYPE_CHECKING:
    from lookact.types import Image


def say(text: str) -> None:
    """One line to standard output, from the first of several processes."""
    if os.environ.get("RANK", "0") == "0":
        sys.stdout.write(text + "\n")


def show_log() -> None:
    """What the library tells about its work goes to standard error, above the progress bars."""
    from rich.logging import RichHandler

    from lookact.train.progress import CONSOLE

    handler: logging.Handler = logging.StreamHandler()
    if CONSOLE.is_terminal:
        handler = RichHandler(console=CONSOLE, show_path=False, show_level=False)
    handler.setLevel(logging.INFO if os.environ.get("RANK", "0") == "0" else logging.WARNING)
    package = logging.getLogger("lookact")
    package.handlers = [kept for kept in package.handlers if kept.name != "screen"]
    handler.name = "screen"
    package.addHandler(handler)
    package.setLevel(logging.INFO)


def show_result(result: Mapping[str, Any], *, as_json: bool, title: str) -> None:
    """A result as one JSON object, or as a table with a row for each value."""
    if as_json:
        say(json.dumps(result, default=str))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False, box=box.SIMPLE_HEAVY)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", overflow="fold")
    for name, value in flat(result):
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    console = Console(file=sys.stdout)
    with console.capture() as text:
        console.print(table)
    say(text.get().rstrip("\n"))


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


def flat(result: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested names joined with dots."""
    for name, value in result.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
