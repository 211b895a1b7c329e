"""Episodes of vectors rather than words, as the records that the player of episodes shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lookact.data.lerobot.read import Demonstration

Row = dict[str, Any]
DIGITS = 4


def list_one(id: str, length: int, task: str, ended: str) -> Row:
    """An episode's line in the list; what only conversations have is None."""
    known = {"question": task, "group": None, "seed": None, "policy_version": None, "error": None, "is_valid": True}
    rest = {"return": None, "dropout_reason": None, "scene_id": None, "success": None, "acts": "vectors"}
    return {"id": id, "length": length, "ended": ended, **rest, **known}


def tell(row: Row, demo: Demonstration) -> Row:
    """An episode step by step: what was seen and done, with neither words nor reward."""
    cameras = [
        {"name": name, "height": frames.shape[1], "width": frames.shape[2]} for name, frames in demo.images.items()
    ]
    turns: list[Row] = [
        {
            **{"text": demo.task, "cameras": cameras, "reply": None, "pieces": [], "reward": None, "info": {}},
            "state": [round(float(value), DIGITS) for value in state],
            "action": [round(float(value), DIGITS) for value in action],
        }
        for state, action in zip(demo.states, demo.actions)
    ]
    return {**row, "turns": turns, "last": None, "map": None, "problem": None}
