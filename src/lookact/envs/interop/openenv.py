"""OpenEnv, both ways: a task served as an OpenEnv environment, and an OpenEnv environment as an `Env`.

app = openenv_app(task)                      # uvicorn module:app
env = OpenEnvEnv("http://127.0.0.1:8000")    # our own task over OpenEnv: the same episodes as in process
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI
from openenv.core import GenericEnvClient
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field

from lookact.envs.remote.codec import decode, encode
from lookact.errors import EnvError
from lookact.protocols import Env, Task
from lookact.types import Observation as ChatObservation

ReadAction = Callable[[Any], Mapping[str, Any]]
"""From a policy's reply to the fields of the environment's action."""
Observe = Callable[[Mapping[str, Any]], ChatObservation]
"""From the fields of the environment's observation to what a policy is shown."""


class ReplyAction(Action):  # type: ignore[misc]
    """A policy's reply."""

    reply: Any


class TurnObservation(Observation):  # type: ignore[misc]
    """What a policy is shown, as `lookact.envs.remote.codec` encodes it."""

    text: str
    observation: dict[str, Any] = Field(description="text, images, depth and state, with dtype and shape")
    truncated: bool = False
    info: dict[str, Any] = Field(default_factory=dict)


class TaskEnvironment(Environment[ReplyAction, TurnObservation, State]):  # type: ignore[misc]
    """A session of an OpenEnv server: one environment of a task."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.env: Env = task.make_env()
        self._state = State(step_count=0)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> TurnObservation:
        """`options` of the reset are those of the episode's spec."""
        self._state = State(episode_id=episode_id, step_count=0)
        seen, info = self.env.reset(seed=seed or 0, options=decode(kwargs.get("options") or {}))
        return TurnObservation(text=seen.text, observation=encode(seen), info=encode(dict(info)))

    def step(self, action: ReplyAction, timeout_s: float | None = None, **kwargs: Any) -> TurnObservation:
        self._state.step_count += 1
        seen, reward, terminated, truncated, info = self.env.step(decode(action.reply))
        return TurnObservation(
            text=seen.text,
            observation=encode(seen),
            reward=float(reward),
            done=terminated or truncated,
            truncated=truncated,
            info=encode(dict(info)),
        )

    @property
    def state(self) -> State:
        return self._state

    def close(self) -> None:
        self.env.close()


def openenv_app(task: Task, *, max_sessions: int = 64) -> FastAPI:
    """A task as an OpenEnv server."""
    app: FastAPI = create_fastapi_app(
        lambda: TaskEnvironment(task), ReplyAction, TurnObservation, max_concurrent_envs=max_sessions
    )
    return app


class OpenEnvEnv:
    """The `Env` protocol over an OpenEnv server; for one that is not ours, say how to read and show."""

    def __init__(self, url: str, *, read: ReadAction | None = None, observe: Observe | None = None) -> None:
        self.url, self.read, self.observe = url, read or (lambda reply: {"reply": encode(reply)}), observe
        self._client: Any = None

    def reset(self, *, seed: int, options: Mapping[str, Any]) -> tuple[ChatObservation, Mapping[str, Any]]:
        if self._client is None:
            self._client = GenericEnvClient(base_url=self.url).sync()
            self._client.connect()
        result = self._ask(self._client.reset, seed=seed, options=encode(dict(options)))
        seen, _, info = self._read(result)
        return seen, info

    def step(self, action: Any) -> tuple[ChatObservation, float, bool, bool, Mapping[str, Any]]:
        result = self._ask(self._client.step, dict(self.read(action)))
        seen, truncated, info = self._read(result)
        reward, done = float(result.reward or 0.0), bool(result.done)
        if self.observe is not None:
            info = {"valid_action": True, "success": done and reward > 0, **info}
        return seen, reward, done and not truncated, truncated, info

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _ask(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return method(*arguments, **options)
        except Exception as error:
            # the session is in no known state: the next reset connects anew
            self.close()
            raise EnvError(f"{self.url}: {type(error).__name__}: {' '.join(str(error).split())[:200]}") from error

    def _read(self, result: Any) -> tuple[ChatObservation, bool, dict[str, Any]]:
        fields: Mapping[str, Any] = result.observation
        if self.observe is not None:
            return self.observe(fields), False, dict(fields.get("metadata") or {})
        try:
            seen, info = decode(fields["observation"]), decode(fields["info"])
        except (KeyError, ValueError, TypeError) as error:
            raise EnvError(
                f"{self.url} is no LookAct task: give OpenEnvEnv an observe and a read of its own"
            ) from error
        return seen, bool(fields["truncated"]), info
