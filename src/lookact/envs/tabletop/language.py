"""What the arm is asked to do, in many wordings, some of which are kept for tests.

Training's wordings name the object first or the target first, as orders, wishes, questions and statements: what tells
the two apart is the words beside their names, not their order. Held-out wordings have sentences and words of their own;
only the names of things, and the commonest words, are training's.
"""

from __future__ import annotations

import numpy as np

WORDINGS: dict[str, tuple[str, ...]] = {
    "reach": (
        "move the gripper to the {object}",
        "go to the {object}",
        "reach for the {object}",
        "bring the hand above the {object}",
        "the gripper should be at the {object}",
        "i want your hand over the {object}",
        "can you reach the {object}?",
        "find the {object} and go there",
        "to the {object}, now",
        "see the {object}? move to it",
    ),
    "push": (
        "push the {object} onto the {target}",
        "slide the {object} to the {target}",
        "move the {object} over the table to the {target}",
        "push the {object} until it is on the {target}",
        "on the {target}, i want the {object}",
        "the {target} is the place for the {object}",
        "the {target} gets the {object}",
        "the {object} should be on the {target}",
        "the {object} has to go to the {target}",
        "can you push the {object} onto the {target}?",
        "your job is to slide the {object} to the {target}",
        "find the {object} and push it to the {target}",
        "see the {target}? move the {object} onto it",
        "now the {object}, over to the {target}",
    ),
    "pick_place": (
        "put the {object} on the {target}",
        "pick up the {object} and place it on the {target}",
        "lift the {object} onto the {target}",
        "take the {object} and set it down on the {target}",
        "place the {object} on the {target}",
        "move the {object} to the {target}",
        "bring the {object} over to the {target}",
        "carry the {object} to the {target} and let go",
        "find the {object}, pick it up and lay it on the {target}",
        "on the {target}, put the {object}",
        "onto the {target} with the {object}",
        "the {target} needs the {object} on it",
        "the {target} gets the {object}",
        "the {target} is the place for the {object}",
        "see the {target}? lift the {object} onto it",
        "i want the {object} on the {target}",
        "the {object} should be on the {target}",
        "the {object} has to go on the {target}",
        "can you put the {object} on the {target}?",
        "your job is to place the {object} on the {target}",
        "now the {object}, onto the {target}",
    ),
    "stack": (
        "stack the {object} on the {target}",
        "put the {object} on top of the {target}",
        "pick up the {object} and stack it on the {target}",
        "lift the {object} onto the {target}",
        "take the {object} and set it down on the {target}",
        "place the {object} on the {target}",
        "build a tower: the {object} on the {target}",
        "carry the {object} to the {target} and let go",
        "find the {object}, pick it up and lay it on the {target}",
        "on the {target}, put the {object}",
        "onto the {target} with the {object}",
        "the {target} goes below, the {object} on top",
        "the {target} needs the {object} on it",
        "see the {target}? stack the {object} on it",
        "i want the {object} on the {target}",
        "the {object} should be on the {target}",
        "can you stack the {object} on the {target}?",
        "now the {object}, onto the {target}",
    ),
    "open_drawer": (
        "open the {target}",
        "pull the {target} open",
        "pull out the {target}",
        "take the handle of the {target} and pull",
        "draw the {target} out",
        "the {target} should be open",
        "i want the {target} open",
        "can you open the {target}?",
        "your job is to open the {target}",
        "find the {target} and pull it out",
        "see the {target}? open it",
        "now the {target}, all the way out",
    ),
    "close_drawer": (
        "close the {target}",
        "push the {target} shut",
        "push in the {target}",
        "slide the {target} back in",
        "shut the {target}",
        "the {target} should be closed",
        "i want the {target} closed",
        "can you close the {target}?",
        "your job is to close the {target}",
        "find the {target} and push it in",
        "see the {target}? close it",
        "now the {target}, all the way in",
    ),
}
HELD_OUT_WORDINGS: dict[str, tuple[str, ...]] = {
    "reach": (
        "hover over the {object}, please",
        "where is the {object}? point the gripper at it",
        "would you kindly approach the {object}",
        "make sure that your fingers end up near the {object}",
    ),
    "push": (
        "shove the {object} so that it covers the {target}",
        "the {object} belongs on the {target}: slide it there",
        "would you kindly nudge the {object} towards the {target}",
        "make sure that the {target} ends up below the {object}",
        "the {target} is still empty: drive the {object} there",
    ),
    "pick_place": (
        "the {object} belongs on the {target}",
        "please grab the {object} and drop it on top of the {target}",
        "would you kindly deposit the {object} upon the {target}",
        "fetch the {object}, then leave it standing on the {target}",
        "make sure that the {target} ends up holding the {object}",
        "the {target} is still empty: get the {object} there",
    ),
    "stack": (
        "the {object} belongs on the {target}",
        "please grab the {object} and balance it upon the {target}",
        "would you kindly pile the {object} onto the {target}",
        "make sure that the {target} ends up holding the {object}",
        "the {target} is still bare: get the {object} there",
    ),
    "open_drawer": (
        "would you kindly slide the {target} towards the camera",
        "make sure that the {target} ends up extended",
        "please get the {target} unshut",
        "someone needs what is inside the {target}",
    ),
    "close_drawer": (
        "would you kindly tuck the {target} away",
        "make sure that the {target} ends up sealed",
        "please get rid of the gap before the {target}",
        "nobody needs what is inside the {target} any more",
    ),
}
TARGET_NAMES = {
    "push": "mark",
    "pick_place": "stand",
    "stack": "block",
    "open_drawer": "drawer",
    "close_drawer": "drawer",
}
LONGEST = 96
"""Characters of the longest instruction, with room to spare."""


def phrase(task: str, *, object: str, target: str, held_out: bool, rng: np.random.Generator) -> str:
    """One wording of the task. `object` is like "red cube", `target` a colour."""
    wordings = (HELD_OUT_WORDINGS if held_out else WORDINGS)[task]
    chosen = wordings[int(rng.integers(len(wordings)))]
    return chosen.format(object=object, target=f"{target} {TARGET_NAMES.get(task, 'mark')}")
