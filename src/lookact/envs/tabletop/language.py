"""What the arm is asked to do, in many wordings, some of which are kept for tests."""

from __future__ import annotations

import numpy as np

WORDINGS: dict[str, tuple[str, ...]] = {
    "reach": (
        "move the gripper to the {object}",
        "go to the {object}",
        "reach for the {object}",
        "bring the hand above the {object}",
    ),
    "push": (
        "push the {object} onto the {target}",
        "slide the {object} to the {target}",
        "move the {object} over the table to the {target}",
        "push the {object} until it is on the {target}",
    ),
    "pick_place": (
        "put the {object} on the {target}",
        "pick up the {object} and place it on the {target}",
        "lift the {object} onto the {target}",
        "take the {object} and set it down on the {target}",
    ),
}
HELD_OUT_WORDINGS: dict[str, tuple[str, ...]] = {
    "reach": ("hover over the {object}, please", "where is the {object}? point the gripper at it"),
    "push": (
        "shove the {object} so that it covers the {target}",
        "the {object} belongs on the {target}: slide it there",
    ),
    "pick_place": (
        "the {object} belongs on the {target}",
        "please grab the {object} and drop it on top of the {target}",
    ),
}
TARGET_NAMES = {"push": "mark", "pick_place": "stand"}
LONGEST = 96
"""Characters of the longest instruction, with room to spare."""


def phrase(task: str, *, object: str, target: str, held_out: bool, rng: np.random.Generator) -> str:
    """One wording of the task. `object` is like "red cube", `target` a colour."""
    wordings = (HELD_OUT_WORDINGS if held_out else WORDINGS)[task]
    chosen = wordings[int(rng.integers(len(wordings)))]
    return chosen.format(object=object, target=f"{target} {TARGET_NAMES.get(task, 'mark')}")
