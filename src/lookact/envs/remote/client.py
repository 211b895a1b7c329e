"""A remote environment as an `Env`: it waits for its server, and goes on with another one where the episode was.

What was asked since the last reset is kept. A session that is lost is replaced: the same seed, options and actions are
sent to a new one, and its answers must be those that were given before. So no episode is lost, and none is run twice.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lookact.envs.remote.codec import FRAME, decode, encode, from_frame, from_json
from lookact.errors import ConfigError, EnvError
from lookact.serving.client import HttpClient, RequestRefused, ServerAway
from lookact.types import Observation

log = logging.getLogger(__name__)
PROTOCOL = 1
"""Changes with every change that older clients or servers would not understand."""
TOKEN = "ENV_SERVER_TOKEN"
LOST = (404, 410)
"""The session is gone, or its environment hangs."""
CONNECTIONS = 512
MAX_PER_CALL = 8
"""Demonstrations, or rooms with pictures, that are asked for at once."""
Step = tuple[Observation, float, bool, bool, Mapping[str, Any]]


@dataclass(frozen=True)
class ServerSpec:
    """Which servers, and how patient a run is with them."""

    urls: tuple[str, ...]
    """Sessions are opened on one after the other."""
    timeout_s: float = 60.0
    retry_s: float = 60.0
    replacements: int = 3
    """Sessions that are replaced within one episode before it fails."""


class Servers:
    """The connections of this process; safe to use from many threads."""

    def __init__(self, spec: ServerSpec, token: str) -> None:
        self.spec = spec
        self.clients = [
            HttpClient(
                url,
                token=token,
                accept=FRAME,
                timeout=spec.timeout_s,
                retry_s=spec.retry_s,
                concurrency=CONNECTIONS,
                seed=number,
            )
            for number, url in enumerate(spec.urls)
        ]
        self._lock = threading.Lock()
        self._opened = 0
        self._away: set[str] = set()
        """Servers that gave no answer in all of `retry_s`: the next request does not wait for them again."""

    def ask(self, client: HttpClient, method: str, path: str, body: Any = None) -> Any:
        """The answer's value. RequestRefused and ServerAway are for the caller; a lie is an EnvError."""
        # other servers are there to turn to, or everyone has waited once already
        hurried = client.url in self._away
        try:
            answer = client.send(method, path, body, retry_s=0.0 if hurried else None)
        except ServerAway:
            with self._lock:
                self._away.add(client.url)
            raise
        if hurried:
            with self._lock:
                self._away.discard(client.url)
        try:
            framed = answer.headers.get("Content-Type") == FRAME
            return from_frame(answer.content) if framed else from_json(answer.content)
        except ValueError as error:
            raise lie(client, error) from error

    def open(self, task_seed: int) -> tuple[HttpClient, str]:
        """A new session, on the next server that answers."""
        reasons = []
        for _ in self.clients:
            with self._lock:
                client = self.clients[self._opened % len(self.clients)]
                self._opened += 1
            try:
                answer = self.ask(client, "POST", "/open", {"task_seed": task_seed})
            except ServerAway as error:
                reasons.append(str(error))
                continue
            if not isinstance(answer, dict) or not isinstance(answer.get("session"), str):
                raise lie(client, "an answer without a session")
            return client, answer["session"]
        raise ServerAway("; ".join(reasons))

    def call(self, method: str, task_seed: int, **arguments: Any) -> Any:
        """What a method of the task returns, from the first server that answers."""
        body = {"method": method, "task_seed": task_seed, **arguments}
        for client in self.clients:
            try:
                answer = self.ask(client, "POST", "/call", body)
                return decode(answer["value"])
            except ServerAway as error:
                away = error
            except RequestRefused as error:
                raise EnvError(str(error)) from error
            except (KeyError, TypeError, ValueError) as error:
                raise lie(client, error) from error
        raise EnvError(f"{away}: start a server with lookact env-server")

    def facts(self) -> dict[str, Any]:
        """What the servers say of their task; all must say the same."""
        told = [self._facts(client) for client in self.clients]
        if any(other != told[0] for other in told):
            raise ConfigError(f"{', '.join(self.spec.urls)} do not serve the same task: give servers of one task")
        return told[0]

    def _facts(self, client: HttpClient) -> dict[str, Any]:
        try:
            found = self.ask(client, "GET", "/task")
        except ServerAway as error:
            raise ConfigError(f"{error}: start a server with lookact env-server") from error
        except RequestRefused as error:
            remedy = f"set {TOKEN}" if error.status == 401 else "is it a lookact env-server?"
            raise ConfigError(f"{error}: {remedy}") from error
        except EnvError as error:
            raise ConfigError(str(error)) from error
        kinds = {"protocol": int, "task": str, "image_size": int, "outcome": dict, "best": str, "presets": dict}
        if not isinstance(found, dict) or any(type(found.get(name)) is not kind for name, kind in kinds.items()):
            raise ConfigError(f"{client.url} does not say what its task is: is it a lookact env-server?")
        if found["protocol"] != PROTOCOL:
            versions = f"protocol {found['protocol']}, this is {PROTOCOL}"
            raise ConfigError(f"{client.url} speaks {versions}: install the same version of LookAct on both sides")
        return found


def servers_of(spec: ServerSpec) -> Servers:
    """The connections that all environments of a process share."""
    return _servers(spec, os.environ.get(TOKEN, ""), os.getpid())


@functools.lru_cache(32)
def _servers(spec: ServerSpec, token: str, process: int) -> Servers:
    return Servers(spec, token)


class RemoteEnv:
    """The `Env` protocol over a session of an environment server."""

    def __init__(self, spec: ServerSpec, task_seed: int = 0) -> None:
        self.spec, self.task_seed = spec, task_seed
        self._servers = servers_of(spec)
        self._session: tuple[HttpClient, str] | None = None
        self._asked: list[tuple[str, dict[str, Any]]] = []
        """Every request of the episode."""
        self._digests: list[int] = []
        """What the policy was shown and paid in answer to each."""
        self._done = 0
        """Requests that this session has answered."""
        self._lost = 0

    def reset(self, *, seed: int, options: Mapping[str, Any]) -> tuple[Observation, Mapping[str, Any]]:
        self._asked, self._digests, self._done = [], [], 0
        # a session of an earlier episode may have been closed since: nothing is lost with it
        self._lost = 0 if self._session is None else -1
        seen, _, _, _, info = self._ask("/reset", {"seed": seed, "options": encode(dict(options), "options")})
        return seen, info

    def step(self, action: Any) -> Step:
        if not self._digests:
            raise EnvError("no episode was begun: call reset before step")
        return self._ask("/step", {"turn": len(self._digests), "action": encode(action, "action")})

    def close(self) -> None:
        """Gives the session back; a server that is away closes it by itself, later."""
        if self._session is not None:
            client, name = self._session
            self._session = None
            try:
                client.send("POST", "/close", {"session": name}, retry_s=0.0)
            except (RequestRefused, ServerAway) as error:
                log.debug("a session was not closed: %s", error)

    def _ask(self, path: str, body: dict[str, Any]) -> Step:
        """The answer to the next request of this episode, on another session where this one is lost."""
        self._asked = [*self._asked[: len(self._digests)], (path, body)]
        while True:
            try:
                if self._session is None:
                    self._session, self._done = self._servers.open(self.task_seed), 0
                return self._catch_up(*self._session)
            except RequestRefused as error:
                if error.status not in LOST:
                    raise EnvError(str(error)) from error
                self._replace(error)
            except ServerAway as error:
                if self._session is None or len(self._servers.clients) == 1:
                    raise EnvError(f"{error}: start a server with lookact env-server") from error
                self._replace(error)

    def _catch_up(self, client: HttpClient, session: str) -> Step:
        """Sends what this session has not been asked yet: the last request, or after a loss all of the episode's."""
        for number in range(self._done, len(self._asked)):
            path, body = self._asked[number]
            answer = self._servers.ask(client, "POST", path, {"session": session, **body})
            step = read_step(client, answer, began=path == "/reset")
            digest = digest_of(step)
            if number < len(self._digests) and digest != self._digests[number]:
                raise EnvError(f"{client.url}: an episode run again differs at turn {number}: its task is not seeded")
            self._digests[number:] = [digest]
            self._done = number + 1
        return step

    def _replace(self, error: Exception) -> None:
        self._session = None
        self._lost += 1
        if self._lost > self.spec.replacements:
            raise EnvError(f"{self._lost} sessions were lost in one episode, the last with: {error}") from error
        log.warning("a session is replaced, its episode run again up to turn %d: %s", len(self._digests), error)


def read_step(client: HttpClient, answer: Any, *, began: bool) -> Step:
    """An answer to /reset or /step as what it must be; anything else is told as the server's mistake."""
    try:
        found = {name: decode(value) for name, value in answer.items()}
        seen, info = found["observation"], found["info"]
        reward, ended, cut = (
            (0.0, False, False) if began else (found["reward"], found["terminated"], found["truncated"])
        )
    except (AttributeError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise lie(client, f"{type(error).__name__}: {error}") from error
    wrong = wrong_observation(seen)
    if wrong or not isinstance(info, dict):
        raise lie(client, wrong or "an info that is no mapping")
    if type(reward) is not float or type(ended) is not bool or type(cut) is not bool:
        raise lie(client, f"reward {reward!r:.40}, terminated {ended!r:.20}, truncated {cut!r:.20}")
    return seen, reward, ended, cut, info


def wrong_observation(seen: Any) -> str:
    """What is wrong with an observation; empty where nothing is."""
    if not isinstance(seen, Observation) or not isinstance(seen.text, str) or not isinstance(seen.images, dict):
        return "no observation"
    for camera, image in seen.images.items():
        kind, shape = getattr(image, "dtype", type(image).__name__), tuple(getattr(image, "shape", ()))
        if kind != np.uint8 or len(shape) != 3 or shape[2] != 3 or 0 in shape:
            return f"an image {camera[:40]!r} of {kind} {shape}, not of uint8 (h, w, 3)"
    for name, axes in (("depth", 2), ("state", 1)):
        array = getattr(seen, name)
        if array is not None and not (isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.ndim == axes):
            return f"a {name} that is no array of {axes} axes"
    return ""


def digest_of(step: Step) -> int:
    """Of what the policy is shown and paid, for comparison within this process; infos may hold times of day."""
    seen, reward, ended, cut, _ = step
    arrays = (*seen.images.values(), seen.depth, seen.state)
    # Python's own hash: a cryptographic one of the pictures takes a tenth of what a step costs a client
    told = tuple(None if array is None else (array.shape, array.tobytes()) for array in arrays)
    return hash((seen.text, tuple(seen.images), reward, ended, cut, told))


def lie(client: HttpClient, what: object) -> EnvError:
    """The server answered, and not as it should."""
    words = " ".join(str(what).split())[:200]
    return EnvError(f"{client.url} answered with {words}: is it a lookact env-server of this version?")
