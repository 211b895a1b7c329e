import numpy as np
from rich.console import Console

from lookact.plots.terminal import UPPER_HALF, draw_blocks


def test_two_pixels_become_one_character():
    picture = np.zeros((4, 2, 3), dtype=np.uint8)
    picture[0], picture[1] = (255, 0, 0), (0, 0, 255)
    drawn = draw_blocks(picture, columns=2)
    assert drawn.plain == f"{UPPER_HALF * 2}\n{UPPER_HALF * 2}"
    styles = [str(span.style) for span in drawn.spans]
    assert styles == ["rgb(255,0,0) on rgb(0,0,255)"] * 2 + ["rgb(0,0,0) on rgb(0,0,0)"] * 2


def test_a_large_view_is_shrunk_to_the_columns():
    view = np.full((96, 96, 3), 200, dtype=np.uint8)
    lines = draw_blocks(view, columns=32).plain.split("\n")
    assert [len(line) for line in lines] == [32] * 16


def test_the_terminal_gets_true_colours():
    console = Console(force_terminal=True, color_system="truecolor", width=20)
    with console.capture() as text:
        console.print(draw_blocks(np.full((2, 1, 3), 7, dtype=np.uint8), columns=1))
    assert "38;2;7;7;7;48;2;7;7;7" in text.get()
