"""One quiet look for every figure: thin spines, a light grid, colours that everyone can tell apart.

Figures are made without pyplot, so nothing here touches a display, a backend or global settings.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import ImageFont

from lookact.errors import ConfigError

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's colours, told apart with any colour vision."""
INK = "#2B2B33"
GREY = "#75757F"
PALE = "#D5D5DB"
GOOD, BAD = PALETTE[2], PALETTE[1]
"""What was reached, and what was not."""
DOTS_PER_INCH = 200
ENDINGS = (".png", ".jpg", ".pdf")

QUIET: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "text.color": INK,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E9E9ED",
    "grid.linewidth": 0.6,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 3.0,
    "ytick.major.size": 3.0,
    "lines.solid_capstyle": "round",
    "lines.solid_joinstyle": "round",
    # letters stay letters in a PDF, so that a journal's checks pass and text can be searched
    "pdf.fonttype": 42,
}


def quiet() -> AbstractContextManager[None]:
    """Inside it, artists are born in this look; outside, matplotlib is as it was."""
    return matplotlib.rc_context(QUIET)


def new_axes(*, width: float = 5.4, height: float = 3.2) -> tuple[Figure, Axes]:
    """An empty figure with one plot in it; sizes in inches. Call it inside `quiet`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def add_note(figure: Figure, text: str) -> None:
    """A small line under the plot that says how it was made."""
    if text:
        figure.supxlabel(text, x=0.01, ha="left", fontsize=7.0, color=GREY)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG, a JPEG or a PDF, by the file's ending; the same figure gives the same bytes."""
    if path.suffix.lower() not in ENDINGS:
        raise ConfigError(f"cannot draw {path}: name it {' or '.join(ENDINGS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"CreationDate": None} if path.suffix.lower() == ".pdf" else None
    with quiet():
        figure.savefig(path, dpi=DOTS_PER_INCH, facecolor="white", metadata=metadata)


@lru_cache
def load_font(size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans for drawing on pictures; it comes with matplotlib, so no system font is needed."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), size)
