"""What a judge is asked, in words. `{goal}` stands for the task's goal."""

from __future__ import annotations

DESCRIBE_OPENING = "You compare two pictures of a robot or a simulation at work. Image 0:"
DESCRIBE_BETWEEN = "Image 1:"
DESCRIBE = (
    "The goal is {goal}. Say what Image 0 shows with regard to the goal, say what Image 1 shows with regard to the "
    "goal, then say whether one of them is closer to reaching it, and which. (Answer in at most three short sentences.)"
)
VERDICT = (
    "Someone compared two pictures, Image 0 and Image 1, with this goal in mind: {goal}.\n"
    "They wrote:\n{description}\n"
    "By what they wrote, in which picture is the goal better reached? Answer with one number and nothing else: "
    "0 for Image 0, 1 for Image 1, -1 if they are equal or it cannot be told."
)
SINGLE = (
    "The goal is {goal}. In which image is the goal better reached? Answer with one number and nothing else: "
    "0 for Image 0, 1 for Image 1, -1 if they are equal or it cannot be told."
)
RATING = (
    "The goal is {goal}. How close is this picture to the goal, from 0 (not begun) to 10 (reached)? "
    "Answer with one number and nothing else."
)
YES = "The goal is {goal}. Is the goal reached in this picture? Answer with yes or no and nothing else."
DESCRIPTION_TOKENS, VERDICT_TOKENS = 256, 16
