"""What `lookact demo --watch` shows of turns."""

import io

import numpy as np
import pytest
from rich.console import Console

from lookact.cli.watch import Screen, Watched, describe_effect, describe_move, printable
from lookact.types import Observation

LEFT = 'I see it far ahead. {"rotation_angle_degrees": 30, "forward_meters": 0.5}'


def info(turn: int, **known):
    return {
        "question": "Find the bed.",
        "goal": "bed",
        "turn": turn,
        "max_turns": 10,
        "distance_to_goal": 2.5,
        "success": False,
        "spl": 0.0,
        "valid_action": True,
        "collided": False,
    } | known


class TwoTurns:
    """A room in which the second step arrives."""

    def __init__(self) -> None:
        self.turn = 0

    def seen(self) -> Observation:
        return Observation(images={"head": np.full((8, 8, 3), 40 * self.turn, dtype=np.uint8)})

    def reset(self, *, seed, options):
        return self.seen(), info(0)

    def step(self, action):
        self.turn += 1
        arrived = self.turn == 2
        return self.seen(), float(arrived), arrived, False, info(self.turn, success=arrived, spl=0.75)


def shown(console: Console, *, coloured: bool) -> str:
    room = Watched(TwoTurns(), Screen(console, rooms=3, coloured=coloured))
    room.reset(seed=0, options={})
    room.step(LEFT)
    room.step("\x1b[2J what?")
    return console.file.getvalue()


def test_without_colours_a_turn_is_one_plain_line():
    text = shown(Console(file=io.StringIO(), width=20), coloured=False)
    assert text.isascii()
    assert text.splitlines() == [
        "",
        "room 1 of 3: Find the bed. (the bed is 2.5 m away)",
        '  turn 1   says "I see it far ahead.", turns left 30 degrees, walks on 0.5 m: done, 2.5 m to go',
        '  turn 2   says "?[2J what?", no action: arrived',
        "  reached in 2 turns, path efficiency (SPL) 0.75",
    ]


def test_with_colours_the_view_stands_beside_the_words(monkeypatch):
    monkeypatch.setattr("lookact.cli.watch.PAUSE", 0.0)
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=100)
    text = shown(console, coloured=True)
    assert text.count("▀") == 2 * 32 * 16
    # the view before the turn, not after it
    assert "38;2;0;0;0;48;2;0;0;0" in text
    assert "38;2;40;40;40" in text
    assert "38;2;80;80;80" not in text
    assert "turns left 30 degrees, walks on 0.5 m" in text
    assert "\x1b[2J" not in text


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ('{"rotation_angle_degrees": -15, "forward_meters": 0}', "turns right 15 degrees"),
        ('{"rotation_angle_degrees": 0, "forward_meters": -0.25}', "walks back 0.25 m"),
        ('{"rotation_angle_degrees": 0, "forward_meters": 0}', "stays"),
        ("no idea", "no action"),
    ],
)
def test_actions_in_words(reply, words):
    assert describe_move(reply) == words


def test_effects_in_words():
    assert describe_effect(info(1, collided=True)) == "blocked, 2.5 m to go"
    assert describe_effect(info(1, valid_action=False)) == "not understood, 2.5 m to go"


def test_signs_that_a_terminal_would_obey_are_not_printed():
    assert printable("a\x1b[31m\nb\x07") == "a?[31m b?"
