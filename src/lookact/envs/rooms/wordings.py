"""How questions are put, and which types are asked by default, for configs that load nothing heavy."""

from __future__ import annotations

from lookact.text.answers import QUESTION_TYPES

QUESTIONS = (
    "How do I get to the {label}?",
    "Go to the {label}.",
    "Find the {label}.",
    "Walk to the {label}.",
)
"""Wordings of the way to an object."""
TYPES = tuple(name for name in QUESTION_TYPES if name != "obj_appearance_order")
"""Asked by default: in which order things appear in a recorded walk is not for this walker to see."""

DIRECTION = "If I am standing by the {here} and facing the {there}, is the {what} "
WORDINGS: dict[str, tuple[str, ...]] = {
    "object_counting": (
        "How many {thing}(s) are in this room?",
        "Counting every {thing} in this room, how many are there?",
        "What is the number of {thing}(s) here?",
    ),
    "object_abs_distance": (
        "Measuring from the closest point of each object, what is the distance between the {first} and the {second} "
        "(in meters)?",
        "From the closest point of the {first} to the closest point of the {second}, what is the distance in meters?",
        "How many meters lie between the {first} and the {second} where they are closest?",
    ),
    "object_size_estimation": (
        "What is the length of the longest dimension (length, width, or height) of the {thing}, measured in "
        "centimeters?",
        "Of the length, width and height of the {thing}, how long is the longest in centimeters?",
        "How many centimeters does the {thing} measure along its longest side?",
    ),
    "room_size_estimation": (
        # the blank before the line's end is the benchmark's
        "What is the size of this room (in square meters)? \n"
        "If multiple rooms are shown, estimate the size of the combined space.",
        "How large is the floor of this room in square meters? If several rooms are shown, add them up.",
        "How many square meters does this room have, with all that is shown of it?",
    ),
    "object_rel_distance": (
        "Measuring from the closest point of each object, which of these objects ({choices}) is the closest to the "
        "{target}?",
        "Which of these ({choices}) is closest to the {target}? Measure between closest points, and where there are "
        "several of a kind take the nearest one.",
        "Of {choices}: what stands nearest to the {target}?",
    ),
    "object_rel_direction_easy": (
        DIRECTION + "to the left or the right of the {there}?",
        "I am standing by the {here} and facing the {there}. Is the {what} on my left or on my right?",
    ),
    "object_rel_direction_medium": (
        DIRECTION + "to my left, right, or back?\n"
        "An object is to my back if I would have to turn at least 135 degrees in order to face it.",
        "I am standing by the {here} and facing the {there}. Is the {what} to my left, to my right or at my back? "
        "At my back means that I would have to turn by 135 degrees or more.",
    ),
    "object_rel_direction_hard": (
        DIRECTION + "to my front-left, front-right, back-left, or back-right?\n"
        "The directions refer to the quadrants of a Cartesian plane (if I am standing at the origin and facing along "
        "the positive y-axis).",
        "I am standing by the {here} and facing the {there}. Is the {what} to my front-left, front-right, back-left or "
        "back-right? These are the four quadrants around me, with the front being where I face.",
    ),
    "obj_appearance_order": (
        "What will be the first-time appearance order of the following categories in the video: {things}?",
        "In the video, in what order do these kinds of things first come into view: {things}?",
    ),
    "route_planning": (
        "You are a robot beginning at the {start} and facing the {faced}. You want to navigate to the {goal}. You will "
        "perform the following actions (Note: for each [please fill in], choose either 'turn back,' 'turn left,' or "
        "'turn right.'): {actions}. You have reached the final destination.",
        "A robot is beginning at the {start} and facing the {faced}. You want to navigate to the {goal} in it. Fill in "
        "'turn back,' 'turn left,' or 'turn right' for each [please fill in]: {actions}. You have reached the {goal}.",
    ),
}
"""By type: VSI-Bench's own wording, then paraphrases that name the same things in the same order."""
