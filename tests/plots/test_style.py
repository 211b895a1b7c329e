import subprocess
import sys

import matplotlib
import PIL.Image
import pytest

from lookact.errors import ConfigError
from lookact.plots.style import load_font, new_axes, quiet, save_figure


def make_figure():
    with quiet():
        figure, axes = new_axes(width=2, height=1)
        axes.plot([0, 1], [0, 1])
    return figure


def test_the_ending_decides_the_format(tmp_path):
    save_figure(make_figure(), tmp_path / "deep" / "a.png")
    save_figure(make_figure(), tmp_path / "a.PDF")
    picture = PIL.Image.open(tmp_path / "deep" / "a.png")
    assert picture.size == (400, 200)
    assert picture.info["dpi"] == pytest.approx((200, 200), abs=0.1)
    assert (tmp_path / "a.PDF").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("name", ["a.png", "a.pdf"])
def test_the_same_figure_gives_the_same_bytes(tmp_path, name):
    for folder in ("one", "two"):
        save_figure(make_figure(), tmp_path / folder / name)
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"a\.bmp: name it \.png or \.jpg or \.pdf"):
        save_figure(make_figure(), tmp_path / "a.bmp")


def test_the_look_does_not_outlive_its_figure():
    before = dict(matplotlib.rcParams)
    make_figure()
    assert dict(matplotlib.rcParams) == before


def test_no_pyplot_is_loaded():
    code = (
        "import sys, lookact.plots.learning_curve, lookact.plots.judge_accuracy, lookact.plots.episode_sheet;"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("bold", [False, True])
def test_the_font_has_the_arrows_and_ticks(bold):
    font = load_font(20, bold=bold)
    missing = font.getmask("\uffff").getbbox(), font.getmask("\uffff").size
    for sign in "⟲⟳↑✓✗°":
        assert (font.getmask(sign).getbbox(), font.getmask(sign).size) != missing
