"""Goals in words for tasks by their names, as a judge is told them: each completes "The goal is ..."."""

from __future__ import annotations

import re

from lookact.errors import ConfigError

METAWORLD_NAME = re.compile(r"(?:metaworld[_-])?([a-z]+(?:-[a-z]+)*)-v[23]")
CLASSIC = {
    "CartPole": "to keep the pole on the cart upright, with the cart near the middle of the track",
    "Pendulum": "to hold the pendulum upright, pointing straight up",
    "MountainCar": "to bring the car up to the flag on the right hill",
    "Acrobot": "to swing the free end of the two links up above the line",
    "MountainCarContinuous": "to bring the car up to the flag on the right hill",
    "LunarLander": "to bring the lander down softly and upright between the two flags",
}
TABLETOP = {
    "Tabletop": "to place the named object on its target",
    "reach": "to bring the gripper to the target point",
    "push": "to push the object onto the target area",
    "pick": "to hold the object in the closed gripper above the table",
    "place": "to set the object down on the target area",
    "pick-and-place": "to lift the object and set it down on the target area",
    "stack": "to set one block on top of the other",
}
DEFORMABLE = {
    "rope": "to pull the orange rope straight",
    "cloth": "to fold the orange cloth so that the corner with the red ball lies on the one with the blue ball",
}
METAWORLD = {
    "sweep-into": "to move the small cube into the square hole in the table",
    "sweep": "to sweep the cube off the edge of the table",
    "drawer-open": "to pull the drawer open",
    "drawer-close": "to push the drawer shut",
    "soccer": "to move the ball into the goal",
    "door-open": "to open the door of the cabinet",
    "door-close": "to close the door of the cabinet",
    "door-lock": "to turn the lock of the door shut",
    "door-unlock": "to turn the lock of the door open",
    "window-open": "to slide the window open",
    "window-close": "to slide the window shut",
    "button-press": "to press the button all the way in",
    "button-press-topdown": "to press the button all the way down from above",
    "reach": "to bring the gripper to the target point",
    "push": "to push the puck onto the target point",
    "pick-place": "to lift the puck and bring it to the target point",
    "peg-insert-side": "to push the peg into the hole in the side of the box",
    "plate-slide": "to slide the plate into the goal cabinet",
    "hammer": "to drive the nail into the board with the hammer",
    "faucet-open": "to turn the tap open",
    "faucet-close": "to turn the tap shut",
    "lever-pull": "to pull the lever up",
    "dial-turn": "to turn the dial half around",
    "basketball": "to drop the ball through the basket",
    "coffee-button": "to press the button of the coffee machine",
    "handle-press": "to press the handle down",
    "handle-pull": "to pull the handle up",
    "shelf-place": "to set the puck on the shelf",
    "bin-picking": "to move the puck from one bin into the other",
    "box-close": "to set the lid on the box",
    "hand-insert": "to bring the gripper into the hole in the table",
}


def goal_of(task: str) -> str:
    """The goal of a task such as metaworld_sweep-into-v2, drawer-open-v3, CartPole-v1 or lookact/Tabletop-v0.

    A MetaWorld task without words of its own gets its name spelt out.
    """
    name = task.rpartition("/")[2]
    robot = METAWORLD_NAME.fullmatch(name)
    if robot:
        return METAWORLD.get(robot[1]) or f"to complete the robot's task, {robot[1].replace('-', ' ')}"
    bare = re.sub(r"-v\d+$", "", name)
    for goals in (TABLETOP, DEFORMABLE, CLASSIC, METAWORLD):
        if bare in goals:
            return goals[bare]
    known = ", ".join(sorted({*METAWORLD, *TABLETOP, *DEFORMABLE, *CLASSIC}))
    raise ConfigError(f"no goal is known for task {task}: give one in words, or choose of {known}")
