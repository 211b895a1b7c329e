"""What the commands write: lines, logs, files, pictures, and results as tables.

A result's measure has its interval beside it, and there is one column for each thing compared.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookact.config import Setting
from lookact.errors import ConfigError
from lookact.training.run_files import log_level

if TYPE_CHECKING:
    from rich.table import Table

    from lookact.types import Image

INTERVALS = "ci"
"""Where a report keeps the 95% intervals of its values."""
RATES = ("ood", "instruction")
"""Names of mappings whose values are all rates; their intervals stand under the same name in the report's own."""
SECONDS = "seconds"
"""Where a result keeps how long each phase took."""
NAMES = {
    "spl": "SPL",
    "collected": "new",
    "kept": "there before",
    "dropout_rate": "dropped",
    "methods": "turns by masking method",
    "qualities": "episodes by quality",
    "reasons": "dropped because",
}
HINT = "in brackets: 95% intervals"
Row = tuple[str, str]
"""A measure, and which of its kinds."""


def is_first() -> bool:
    """Whether this is the first of several processes, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def say(text: str) -> None:
    """One line to standard output, from the first of several processes."""
    if is_first():
        sys.stdout.write(text + "\n")


def show_log(level: str = "info") -> None:
    """What the library tells about its work, from this level on, goes to standard error, above the progress bars."""
    from rich.logging import RichHandler

    from lookact.training.progress import CONSOLE

    handler: logging.Handler = logging.StreamHandler()
    if CONSOLE.is_terminal:
        handler = RichHandler(console=CONSOLE, show_path=False, show_level=False)
    least = log_level(level)
    handler.setLevel(least if is_first() else max(least, logging.WARNING))
    package = logging.getLogger("lookact")
    package.handlers = [kept for kept in package.handlers if kept.name != "screen"]
    handler.name = "screen"
    package.addHandler(handler)
    package.setLevel(min(least, logging.INFO))
    _silence_transformers()


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
    from rich.text import Text

    table = new_table()
    for heading in ("setting", "value", "takes", ""):
        table.add_column(heading, no_wrap=heading == "setting")
    for leaf in leaves:
        value = ",".join(map(str, leaf.value)) if isinstance(leaf.value, tuple) else str(leaf.value)
        table.add_row(*map(Text, (f"--{leaf.name}", value, leaf.type, leaf.help)))
    show_table(table, title)


def _silence_transformers() -> None:
    """Its bars for reading and writing weights tear ours; those of downloads stay."""
    if "transformers" in sys.modules:
        from huggingface_hub.utils.tqdm import enable_progress_bars
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        enable_progress_bars()


def show_result(result: Mapping[str, Any], *, as_json: bool, title: str) -> None:
    """A result as one JSON object, or as a table of reports and a line on the time they took."""
    if as_json:
        say(json.dumps(result, default=str))
        return
    show_report({name: value for name, value in result.items() if name != SECONDS}, title=title)
    if SECONDS in result:
        show_seconds(result[SECONDS])


def show_report(result: Mapping[str, Any], *, title: str) -> None:
    """Reports as one table: the first level of names makes the columns, a second one splits each measure's row."""
    cells = _joined(_cells(result))
    columns = list(dict.fromkeys(column for column, _ in cells))
    rows = _ordered([row for _, row in cells])
    table = new_table()
    table.add_column("")
    kinds = any(kind for _, kind in rows)
    if kinds:
        table.add_column("")
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    table.show_header = any(columns)
    last = None
    for measure, kind in rows:
        name = "" if measure == last else display_name(measure)
        values = [cells.get((column, (measure, kind)), "") for column in columns]
        table.add_row(name, *([kind] if kinds else []), *values)
        last = measure
    show_table(table, title, note=HINT if any("[" in cell for cell in cells.values()) else "")


def show_counts(result: Mapping[str, Any], *, title: str) -> None:
    """Plain values, then each group of counts with the shares they make up."""
    table = new_table()
    table.show_header = False
    table.add_column("")
    table.add_column("")
    table.add_column("", justify="right", overflow="fold")
    for name, value in result.items():
        if not isinstance(value, Mapping):
            table.add_row(display_name(name), "", format_value(name, value))
    for name, counts in result.items():
        if isinstance(counts, Mapping):
            total = max(1, sum(counts.values()))
            for number, (kind, count) in enumerate(counts.items()):
                table.add_row("" if number else display_name(name), kind, f"{count} ({count / total:.0%})")
    show_table(table, title)


def new_table() -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAVY, collapse_padding=True, pad_edge=False)


def show_table(table: Table, title: str, *, note: str = "", width: int = 140) -> None:
    """On a terminal as wide as it is, elsewhere as wide as it needs to be, but for `width`."""
    from rich.console import Console

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else width, markup=False, highlight=False)
    with console.capture() as text:
        # over the table, not in it: a title may be longer than the rows
        console.print(title, style="bold")
        console.print(table)
        if note:
            console.print(f" {note}")
    say("\n".join(line.rstrip() for line in text.get().rstrip("\n").split("\n")))


def display_name(name: str) -> str:
    return NAMES.get(name, name.removesuffix("_rate").replace("_", " "))


def format_value(name: str, value: Any, interval: Sequence[float] | None = None) -> str:
    """A rate in percent, another number with a digit or two, and its interval if it has one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    scale, digits = (100, 0) if name.endswith("_rate") else (1, 2 if abs(value) < 1 else 1)
    text = (
        str(value)
        if isinstance(value, int) and scale == 1
        else f"{scale * value:.{digits}f}{'%' if scale == 100 else ''}"
    )
    ends = ", ".join(f"{scale * end:.{digits}f}" for end in interval or ())
    return f"{text} [{ends}]" if ends else text


def show_seconds(seconds: Mapping[str, float]) -> None:
    """How long each phase took, and all of them."""
    for name, value in {**seconds, "in all": sum(seconds.values())}.items():
        say(f" {name:<26} {clock(value):>6}")
    say("")


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


def _cells(result: Mapping[str, Any]) -> dict[tuple[str, Row], str]:
    """What stands in each column and row."""
    cells = {}
    for path, report in _reports(result):
        column, kind = (path[0] if path else ""), " ".join(path[1:])
        for name, value in report.items():
            if name != INTERVALS and not isinstance(value, Mapping):
                interval = report.get(INTERVALS, {}).get(name)
                unit = f"{name}_rate" if path and path[-1] in RATES else name
                cells[column, (name, kind)] = format_value(unit, value, interval)
    return cells


def _joined(cells: Mapping[tuple[str, Row], str]) -> dict[tuple[str, Row], str]:
    """A plain value that is the same for all kinds, as a count of episodes is, needs one row only."""
    shown: dict[str, set[str]] = {}
    for (_, (measure, _)), cell in cells.items():
        shown.setdefault(measure, set()).add(cell)
    same = {measure for measure, values in shown.items() if len(values) == 1 and "[" not in next(iter(values))}
    return {
        (column, (measure, "" if measure in same else kind)): cell for (column, (measure, kind)), cell in cells.items()
    }


def _reports(
    result: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Every mapping that holds plain values, by the names that lead to it."""
    if any(not isinstance(value, Mapping) for value in result.values()):
        yield path, result
    for name, value in result.items():
        if isinstance(value, Mapping) and name != INTERVALS:
            intervals = {INTERVALS: result.get(INTERVALS, {}).get(name, {})} if name in RATES else {}
            yield from _reports({**value, **intervals}, (*path, name))


def _ordered(rows: Sequence[Row]) -> list[Row]:
    """Each row once, the kinds of one measure together."""
    measures = list(dict.fromkeys(measure for measure, _ in rows))
    kinds = list(dict.fromkeys(kind for _, kind in rows))
    known = set(rows)
    return [(measure, kind) for measure in measures for kind in kinds if (measure, kind) in known]
