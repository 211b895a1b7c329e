"""What a dataset's actions mean, as a typed record beside it: two of equal size may mean different things."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from lookact.data.lerobot.read import ACTION, INFO, read_info, read_stats
from lookact.errors import DataError

ACTION_SPACE = "meta/action_space.json"
"""A file of our own, which LeRobot does not look at."""
Bounds = Literal["recorded", "minmax", "quantile"]


@dataclass(frozen=True)
class ActionSpace:
    """Conventions of an action."""

    control: Literal["ee_delta", "ee_absolute", "delta_qpos", "absolute_qpos"]
    """Of the tool or of the joints, as a change or as a goal."""
    rotation: Literal["none", "yaw", "axis_angle", "euler", "quaternion", "rot6d"]
    gripper: Literal["none", "open_positive", "close_positive"]
    rate: float
    """Actions a second."""


def write_action_space(folder: Path, space: ActionSpace) -> None:
    (folder / ACTION_SPACE).write_text(json.dumps(asdict(space), indent=2) + "\n", encoding="utf-8")


def read_action_space(folder: Path) -> ActionSpace | None:
    """The record beside a dataset; None where there is none."""
    path = folder / ACTION_SPACE
    if not path.is_file():
        return None
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        space = ActionSpace(**told)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        names = ", ".join(each.name for each in fields(ActionSpace))
        raise DataError(f"{path} is no JSON object of {names}: {' '.join(str(error).split())[:100]}") from error
    for name, kind in get_type_hints(ActionSpace).items():
        choices = get_args(kind)
        if choices and getattr(space, name) not in choices:
            raise DataError(f"{path}: {name} is {str(getattr(space, name))[:40]}: choose one of {', '.join(choices)}")
    return space


def check_action_space(folder: Path, wanted: ActionSpace) -> None:
    """Refuse a dataset whose actions mean something else, by its record, and at another rate by what it says itself."""
    found = read_action_space(folder)
    for name, value in () if found is None else asdict(found).items():
        if value != getattr(wanted, name):
            raise DataError(
                f"{folder}: actions have {name} {value}, the environment's {getattr(wanted, name)}: convert them, "
                f"or mend {ACTION_SPACE}"
            )
    fps = float(read_info(folder)["fps"])
    if fps != wanted.rate:
        raise DataError(
            f"{folder} was recorded at {fps:g} steps a second ({INFO}), the environment takes {wanted.rate:g}: "
            f"resample it"
        )


def action_bounds(folder: Path, kind: Bounds) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """What stands for -1 and 1 by the dataset's statistics; None: actions are taken as they were recorded."""
    if kind == "recorded":
        return None
    stats, names = read_stats(folder).get(ACTION, {}), ("min", "max") if kind == "minmax" else ("q01", "q99")
    if absent := [name for name in names if name not in stats]:
        raise DataError(f"{folder} has no {absent[0]} of {ACTION} in its statistics: choose minmax, or write them anew")
    low, high = (stats[name].reshape(-1) for name in names)
    # a number that never changes has no range
    flat = high - low < 1e-6
    return np.where(flat, low - 1.0, low), np.where(flat, high + 1.0, high)
