"""Tasks of public suites by name: `metaworld:drawer-open-v3`, `maniskill:PickCube-v1`, `libero:libero_goal/3`."""

from __future__ import annotations

import functools
import re
from typing import Any

import gymnasium

from lookact.envs.control.control_task import ControlTask
from lookact.envs.control.metaworld_views import view_of
from lookact.envs.control.scripted_experts import metaworld_policy
from lookact.envs.control.task_names import METAWORLD
from lookact.errors import ConfigError
from lookact.extras import is_installed, pip_install

MANISKILL, LIBERO = re.compile(r"[A-Za-z]\w*-v\d+"), re.compile(r"(libero_\w+)/(\d+)")

ACTION_REPEAT, STEPS = 3, 500
"""Of MetaWorld: simulator steps a decision, and an episode. Its scripted experts need 15 to 35 decisions."""


class SuccessOnce(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps `info["success"]` once it was told in an episode, which goes on: a dense reward would miss what follows."""

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        self.succeeded = False
        return self.env.reset(**how)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        shown, reward, terminated, truncated, info = self.env.step(action)
        self.succeeded = self.succeeded or bool(info["success"])
        return shown, reward, terminated, truncated, {**info, "success": self.succeeded}


def suite_task(name: str) -> ControlTask | None:
    """The task that SUITE:NAME names; None where it names no suite."""
    suite, _, task = name.partition(":")
    # metaworld is a module too, which registers Gymnasium ids: metaworld:Meta-World/MT1
    if suite == "metaworld" and METAWORLD.fullmatch(task):
        return _metaworld(task)
    if suite == "maniskill" and MANISKILL.fullmatch(task):
        return _maniskill(task)
    if suite == "libero" and (found := LIBERO.fullmatch(task)):
        return _libero(found[1], int(found[2]))
    return None


def _metaworld(task: str) -> ControlTask:
    _need("metaworld", "robot", f"metaworld:{task}")
    from lookact.envs.control.metaworld import task_name

    name = task_name(task)
    view, policy = view_of(name), metaworld_policy(name)
    told = view.goal.removeprefix("to ") if view else name.removesuffix("-v3").replace("-", " ")
    return ControlTask(
        functools.partial(_make_metaworld, name),
        instruction=told,
        expert=None if policy is None else lambda env, shown: policy(shown),
    )


def _make_metaworld(name: str) -> Any:
    from lookact.envs.control.metaworld import MetaWorld

    return SuccessOnce(MetaWorld(name, horizon=STEPS // ACTION_REPEAT, action_repeat=ACTION_REPEAT, camera="task"))


def _maniskill(task: str) -> ControlTask:
    _need("mani_skill", "maniskill", f"maniskill:{task}")
    from lookact.envs.maniskill.tasks import expert_of, instruction_of, make_task

    return ControlTask(lambda: SuccessOnce(make_task(task)), instruction=instruction_of(task), expert=expert_of(task))


def _libero(suite: str, number: int) -> ControlTask:
    # its pins (robosuite 1.4.0) are its own: no extra of ours could keep them
    if not is_installed("libero"):
        raise ConfigError(f"libero:{suite}/{number} needs LIBERO: pip install hf-libero")
    from lookact.envs.control.libero import make_task, task_instruction

    return ControlTask(functools.partial(make_task, suite, number), instruction=task_instruction(suite, number))


def _need(module: str, extra: str, task: str) -> None:
    if not is_installed(module):
        raise ConfigError(f"{task} needs {module}: {pip_install(extra)}")
