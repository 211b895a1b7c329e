"""A task as a `verifiers` environment: every spec is a row, every observation a user message with its images.

def load_environment(**kwargs):
    return verifiers_environment(task, task.specs(0, "train", groups=64))
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import verifiers as vf
from datasets import Dataset

from lookact.envs.interop.messages import openai_message
from lookact.envs.remote.codec import decode, encode
from lookact.protocols import Task
from lookact.types import EpisodeSpec


class TaskEnv(vf.MultiTurnEnv):  # type: ignore[misc]
    """Runs a task's episodes; the return is the reward, and `state["turns"]` holds what each step gave."""

    def __init__(self, task: Task, specs: Sequence[EpisodeSpec], **kwargs: Any) -> None:
        rows = [{"prompt": [{"role": "user", "content": ""}], "info": json.dumps(encode(spec))} for spec in specs]
        super().__init__(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[episode_return]), **kwargs)
        self.lookact_task = task

    async def setup_state(self, state: Any) -> Any:
        """Starts the row's episode; its first observation is the prompt."""
        info = state["info"]
        spec: EpisodeSpec = decode(json.loads(info) if isinstance(info, str) else info)
        env = state["env"] = await asyncio.to_thread(self.lookact_task.make_env)
        seen, told = await asyncio.to_thread(lambda: env.reset(seed=spec.seed, options=spec.options))
        state["start"], state["turns"] = (seen, told), []
        state["input"]["prompt"] = [*state["prompt"][:-1], vf.UserMessage(**openai_message(seen))]
        return state

    async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
        """The observation after the last reply."""
        step = await asyncio.to_thread(state["env"].step, text_of(messages[-1]))
        state["turns"].append(step)
        seen, reward, terminated, truncated, _ = step
        state["trajectory"][-1]["reward"] = reward
        response = [vf.UserMessage(**openai_message(seen))]
        if terminated or truncated:
            state["final_env_response"] = response
        return response

    @vf.cleanup  # type: ignore[untyped-decorator]
    async def close_env(self, state: Any) -> None:
        env = state.pop("env", None)
        if env is not None:
            await asyncio.to_thread(env.close)


def verifiers_environment(task: Task, specs: Sequence[EpisodeSpec], **kwargs: Any) -> TaskEnv:
    """The environment that a `load_environment` returns; further words are those of `verifiers.MultiTurnEnv`."""
    return TaskEnv(task, specs, **kwargs)


async def episode_return(state: Any) -> float:
    """The sum of the environment's rewards."""
    return float(sum(reward for _, reward, *_ in state["turns"]))


def text_of(message: Any) -> str:
    """The text of a reply, given as one text or in parts."""
    content = message["content"] if isinstance(message, dict) else message.content
    if isinstance(content, str):
        return content
    parts = [part if isinstance(part, dict) else vars(part) for part in content or []]
    return "".join(part.get("text", "") for part in parts)
