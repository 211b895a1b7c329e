"""ManiSkill's own tasks (arXiv:2410.00425) as plain Gymnasium environments, with their rewards and their success.

ManiSkill speaks in batched torch tensors and nested dicts; here an observation is a picture for each of the task's
cameras and one `state` of all that ManiSkill calls `agent` and `extra`: the arm, and what a task tells beside pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lookact.envs.maniskill.device import prepare
from lookact.errors import ConfigError
from lookact.types import Image

CONTROL = "pd_ee_delta_pos"
"""Of the tool: three numbers for its way, ten centimetres at most, and one for the fingers."""
REACH = 0.1
"""Metres of an action of 1."""
GOALS = {
    "PickCube-v1": "pick up the red cube and hold it at the goal",
    "PushCube-v1": "push the blue cube into the red and white ring",
    "PullCube-v1": "pull the blue cube into the red and white ring",
}
"""What the policy is told; other tasks by their names."""
HOVER, TOUCH = 0.08, 0.015
"""Metres above or beside an object on the way to it, and those that count as there."""
BESIDE = 0.05
"""Metres from a cube's middle to the tool that is about to push or pull it."""
Shown = dict[str, Any]
Vector = NDArray[np.float64]


class ManiSkillTask(gymnasium.Env[Shown, NDArray[np.float32]]):
    """One of ManiSkill's environments, made by `gymnasium.make` for one scene on the CPU, without its batch axis.

    An episode goes on after success, as in ManiSkill's own evaluation (`ignore_terminations`): its dense reward is
    positive, so that ending early would cost what staying at the goal earns.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, inner: gymnasium.Env[Any, Any]) -> None:
        self.inner, self.render_mode = inner, "rgb_array"
        self.spec = inner.spec
        rate = getattr(inner.unwrapped, "control_freq", self.metadata["render_fps"])
        self.metadata = {**self.metadata, "render_fps": rate}
        shown, _ = inner.reset(seed=0)
        pictures, state = split(shown)
        self.observation_space = spaces.Dict(
            {
                **{name: spaces.Box(0, 255, picture.shape, np.uint8) for name, picture in pictures.items()},
                "state": spaces.Box(-np.inf, np.inf, state.shape, np.float32),
            }
        )
        self.action_space = getattr(inner.unwrapped, "single_action_space", inner.action_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Shown, dict[str, Any]]:
        super().reset(seed=seed)
        shown, info = self.inner.reset(seed=seed)
        return self._observation(shown), {"success": _flag(info, "success")}

    def step(self, action: NDArray[np.float32]) -> tuple[Shown, float, bool, bool, dict[str, Any]]:
        shown, reward, _, truncated, info = self.inner.step(action)
        over, success = bool(numbers(truncated)[0]), _flag(info, "success")
        return self._observation(shown), float(numbers(reward)[0]), False, over, {"success": success}

    def render(self) -> Image:
        """The first camera's picture."""
        return next(iter(self._pictures.values()))

    def close(self) -> None:
        self.inner.close()

    def _observation(self, shown: Mapping[str, Any]) -> Shown:
        pictures, state = split(shown)
        self._pictures = pictures
        return {**pictures, "state": state}


def make_task(task: str, *, image_size: int = 128) -> ManiSkillTask:
    """The task of this id, drawn by this process's own device."""
    device = prepare()
    import mani_skill.envs  # noqa: F401  registers the tasks

    try:
        inner = gymnasium.make(
            task,
            num_envs=1,
            obs_mode="rgb",
            control_mode=CONTROL,
            sim_backend="physx_cpu",
            render_backend=device,
            sensor_configs={"width": image_size, "height": image_size},
        )
    except (gymnasium.error.Error, AssertionError, KeyError) as error:
        told = " ".join(str(error).split())
        raise ConfigError(f"maniskill:{task} can't be made with {CONTROL} and pictures: {told}") from error
    return ManiSkillTask(inner)


def split(shown: Mapping[str, Any]) -> tuple[dict[str, Image], NDArray[np.float32]]:
    """ManiSkill's observation of one scene as pictures by camera, and the numbers of the rest in its order."""
    pictures = {camera: np.asarray(parts["rgb"], np.uint8)[0] for camera, parts in shown.get("sensor_data", {}).items()}
    told = [part for name in ("agent", "extra") for part in _leaves(shown.get(name, {}))]
    return pictures, np.concatenate([numbers(part) for part in told] or [np.zeros(1)]).astype(np.float32)


def numbers(value: Any) -> Vector:
    """A tensor, array or number, flat."""
    return np.asarray(value, np.float64).reshape(-1)


def instruction_of(task: str) -> str:
    """What the policy is told: the task's goal, or its name in words."""
    if task in GOALS:
        return GOALS[task]
    name = task.partition("-v")[0]
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


# ---- experts, who know where things are


def expert_of(task: str) -> Callable[[Any, Any], Vector] | None:
    """Who demonstrates a task; None where nobody does."""
    found = {"PickCube-v1": pick, "PushCube-v1": push, "PullCube-v1": pull}.get(task)
    if found is None:
        return None

    def act(env: gymnasium.Env[Any, Any], shown: Any) -> Vector:
        task_env: Any = env.unwrapped
        scene: Any = task_env.inner.unwrapped
        thing, goal = ("cube", "goal_site") if task == "PickCube-v1" else ("obj", "goal_region")
        places = [numbers(getattr(scene, name).pose.p) for name in (thing, goal)]
        tool, fingers = scene.agent.tcp.pose.p, numbers(scene.agent.robot.get_qpos())[-2:]
        return found(places[0], places[1], numbers(tool), float(fingers.sum()))

    return act


def pick(thing: Vector, goal: Vector, tool: Vector, opening: float) -> Vector:
    """(4,) towards holding the thing (3,) at the goal (3,), with the tool (3,) and fingers `opening` metres apart."""
    beside = float(np.linalg.norm(tool[:2] - thing[:2]))
    # fingers that have closed on a cube of 4 cm
    closed = opening < 0.045
    if float(np.linalg.norm(tool - thing)) < (2 * TOUCH if closed else TOUCH):
        return action(goal - thing if closed else np.zeros(3), grip=-1.0)
    above = np.array([0.0, 0.0, HOVER if beside > TOUCH else 0.0])
    return action(thing + above - tool, grip=1.0)


def push(thing: Vector, goal: Vector, tool: Vector, opening: float) -> Vector:
    """(4,) as `pick`: closed fingers go down on the thing's near side, then on through it."""
    return _shove(thing, goal, tool, -1.0)


def pull(thing: Vector, goal: Vector, tool: Vector, opening: float) -> Vector:
    """(4,) as `push`, from the far side: the goal is nearer to the arm than the thing."""
    return _shove(thing, goal, tool, 1.0)


def action(way: Vector, *, grip: float) -> Vector:
    """(4,) a step along the way (3,) in metres; a grip of 1 opens the fingers, -1 closes them."""
    return np.append(np.clip(way / REACH, -1.0, 1.0), grip)


def _shove(thing: Vector, goal: Vector, tool: Vector, side: float) -> Vector:
    begin = thing + np.array([side * BESIDE, 0.0, 0.0])
    behind = side * (tool[0] - thing[0]) > 0.02 and abs(tool[1] - thing[1]) < TOUCH
    if behind and tool[2] < thing[2] + TOUCH:
        # slowly, so that the cube is not thrown ahead
        way = np.clip(goal - thing, -0.03, 0.03)
        return action(np.array([way[0], thing[1] - tool[1], 0.0]), grip=-1.0)
    over = float(np.linalg.norm(tool[:2] - begin[:2])) > TOUCH
    above = np.array([0.0, 0.0, HOVER if over else 0.0])
    return action(begin + above - tool, grip=-1.0)


def _flag(info: Mapping[str, Any], name: str) -> bool:
    return bool(numbers(info[name])[0]) if name in info else False


def _leaves(part: Any) -> Iterator[Any]:
    if isinstance(part, Mapping):
        for inner in part.values():
            yield from _leaves(inner)
    else:
        yield part
