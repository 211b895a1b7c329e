"""An environment in the form of TRL's `environment_factory` as a chat environment: its public methods are tools.

    class Guess:
        def reset(self, **row): ...            # a text, content blocks with images, or None
        def guess(self, number: int) -> str:
            \"\"\"Guess the number. Args: number: from 1 to 9.\"\"\"

TASK = GymTask(partial(ToolChat, Guess, reward_funcs=(reward,)), image_size=96, actions=("guess(1)", "guess(2)"))
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lookact.envs.wrappers.gym_chat import CAMERA, KEY
from lookact.errors import ConfigError, EnvError, ParseError
from lookact.text.actions import parse_json_object
from lookact.types import Image, Observation

CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
NOT_TOOLS = ("reset", "get_reward", "close")
RewardFunc = Callable[..., Sequence[float]]
"""As TRL has it: `f(environments, prompts, completions, **columns)`, one number an environment."""


class ToolChat:
    """The `Env` protocol over a class in TRL's form: a reply calls a tool, what that returns is the next observation.

    A call is `{"name": "guess", "arguments": {"number": 3}}` or, shorter, `{"action": "guess(3)"}`. A reply without one
    ends the episode, and so does an environment whose `done` is true. What a tool raises is told to the model. The
    reward is paid in the last turn: the sum of `reward_funcs`, or the environment's `get_reward()` or `reward`.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        *,
        rows: Sequence[Mapping[str, Any]] = ({},),
        reward_funcs: Sequence[RewardFunc] = (),
        max_turns: int = 10,
    ) -> None:
        """`rows` are a dataset's: a group's episodes have one, `reset` gets its columns, its `prompt` comes first."""
        if not rows:
            raise ConfigError("a tool environment needs at least one row: leave rows out, or give it a dataset")
        self.factory, self.rows, self.reward_funcs, self.max_turns = factory, rows, reward_funcs, max_turns
        self.turn, self._over = 0, True

    def reset(self, *, seed: int, options: Mapping[str, Any]) -> tuple[Observation, Mapping[str, Any]]:
        start = int(options.get("start_seed", seed))
        self.env, self.row = self.factory(), self.rows[start % len(self.rows)]
        self.tools = tools_of(self.env)
        accepts = inspect.signature(self.env.reset).parameters
        seeded = {"seed": start % 2**31} if "seed" in accepts and "seed" not in self.row else {}
        seen = self.env.reset(**self.row, **seeded)
        self.turn, self._over, self._replies = 0, False, list[str]()
        prompt = _prompt(self.row.get("prompt", ""))
        return observation(" ".join(text for text in (prompt, describe(self.tools)) if text), seen), self._info("")

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Mapping[str, Any]]:
        if self._over:
            raise EnvError("the episode is over: call reset before the next step")
        self.turn += 1
        self._replies.append(str(action))
        ended, problem, seen = False, "", None
        try:
            tool, arguments = read_call(str(action), self.tools)
        except ParseError as error:
            ended, problem = True, str(error)
        else:
            try:
                seen = tool(*arguments[0], **arguments[1])
            except Exception as error:
                seen = problem = f"{type(error).__name__}: {error}"
        terminated = ended or bool(getattr(self.env, "done", False))
        truncated = not terminated and self.turn >= self.max_turns
        self._over = terminated or truncated
        reward = self._reward() if self._over else 0.0
        info = {**self._info(problem), "success": self._over and reward > 0}
        return observation("", seen), reward, terminated, truncated, info

    def close(self) -> None:
        if hasattr(self, "env") and hasattr(self.env, "close"):
            self.env.close()

    def _info(self, problem: str) -> dict[str, Any]:
        told = {"valid_action": not problem, "action_error": problem, "success": False}
        return {**told, "turn": self.turn, "max_turns": self.max_turns}

    def _reward(self) -> float:
        if self.reward_funcs:
            columns = {name: [value] for name, value in self.row.items() if name != "prompt"}
            shared: dict[str, Any] = {"environments": [self.env], "prompts": [self.row.get("prompt", "")], **columns}
            paid = sum(float(f(completions=[" ".join(self._replies)], **shared)[0]) for f in self.reward_funcs)
        elif hasattr(self.env, "get_reward"):
            paid = float(self.env.get_reward())
        elif hasattr(self.env, "reward"):
            paid = float(self.env.reward)
        else:
            raise EnvError(f"{type(self.env).__name__} has no reward, and no get_reward(): give reward_funcs")
        if not math.isfinite(paid):
            raise EnvError(f"{type(self.env).__name__} was paid {paid}: give a finite reward")
        return paid


def tools_of(env: Any) -> dict[str, Callable[..., Any]]:
    """The environment's public methods by name; each needs a docstring, from which the model learns of it."""
    named = {name: getattr(env, name) for name in dir(type(env)) if not name.startswith("_") and name not in NOT_TOOLS}
    tools = {name: tool for name, tool in named.items() if callable(tool)}
    if not tools:
        raise EnvError(f"{type(env).__name__} has no public method beside reset: its tools are its actions")
    for name, tool in tools.items():
        if not inspect.getdoc(tool):
            raise EnvError(f"{type(env).__name__}.{name} has no docstring: say what the tool does and takes")
    return tools


def describe(tools: Mapping[str, Callable[..., Any]]) -> str:
    """The tools in a line each: what a call looks like, and what it does."""
    lines = []
    for name, tool in tools.items():
        about = " ".join(str(inspect.getdoc(tool)).split("\n\n")[0].split())
        lines.append(f"{name}({', '.join(inspect.signature(tool).parameters)}): {about}")
    return "\n".join(lines)


def read_call(
    reply: str, tools: Mapping[str, Callable[..., Any]]
) -> tuple[Callable[..., Any], tuple[list[Any], dict[str, Any]]]:
    """The tool that a reply calls, and its arguments by place and by name. Raises ParseError."""
    call = parse_json_object(reply)
    call = call["function"] if isinstance(call.get("function"), dict) else call
    short = CALL.fullmatch(str(call.get(KEY, "")))
    name = short[1] if short else call.get("name")
    if name not in tools:
        raise ParseError(f"call one of {', '.join(tools)}")
    if short:
        return tools[str(name)], ([_value(part) for part in short[2].split(",") if part.strip()], {})
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        raise ParseError("arguments must be an object of names and values")
    return tools[str(name)], ([], arguments)


def observation(text: str, seen: Any) -> Observation:
    """What `reset` or a tool returned: a text, content blocks of texts and images, or None."""
    blocks = [{"type": "text", "text": seen}] if isinstance(seen, str) else seen or []
    if not isinstance(blocks, Sequence) or not all(isinstance(block, Mapping) for block in blocks):
        raise EnvError(f"a tool returned a {type(seen).__name__}: return a text, or blocks of text and image")
    texts = [text] * bool(text) + [str(block["text"]) for block in blocks if block.get("type") == "text"]
    pictures = [_picture(block["image"]) for block in blocks if block.get("type") == "image"]
    names = [CAMERA, *(f"{CAMERA}_{number}" for number in range(1, len(pictures)))]
    return Observation(text="\n".join(texts), images=dict(zip(names, pictures)))


def _picture(image: Any) -> Image:
    return np.asarray(image.convert("RGB") if hasattr(image, "convert") else image, dtype=np.uint8)


def _prompt(prompt: Any) -> str:
    """A dataset's prompt, as a text or as messages."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(str(message["content"]) for message in prompt)


def _value(text: str) -> Any:
    """An argument as JSON has it, or else as the text it is."""
    try:
        return json.loads(text.strip().replace("'", '"'))
    except ValueError:
        return text.strip()
