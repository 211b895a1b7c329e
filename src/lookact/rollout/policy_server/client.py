"""A client of the policy server, in openpi's message form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.errors import EngineError
from lookact.rollout.policy_server.app import LIMITS
from lookact.rollout.policy_server.codec import pack, unpack
from lookact.serving.limits import Refused


class PolicyClient:
    """One connection: `metadata` tells what the policy wants, `reset` begins an episode, `act` gives an action."""

    def __init__(self, url: str, *, token: str = "", timeout: float = 60.0) -> None:
        """`url` as in ws://127.0.0.1:8200."""
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        self._lost, self.url, self.timeout = (WebSocketException, OSError), url, timeout
        headers = {"Authorization": f"Bearer {token}"} if token else None
        try:
            # a proxy from the environment must not stand between this and a local server
            self._socket = connect(url, additional_headers=headers, compression=None, proxy=None, open_timeout=timeout)
        except self._lost as error:
            raise EngineError(f"no policy at {url}: {error}") from error
        self.metadata: dict[str, Any] = self._receive()
        self._begins = True

    def reset(self) -> None:
        """The next observation is the first of an episode."""
        self._begins = True

    def act(self, observation: Mapping[str, Any]) -> NDArray[np.float32]:
        """The action (a,) for an observation: cameras, `state` and `instruction` by name."""
        sent = {**observation, "reset": True} if self._begins else dict(observation)
        try:
            self._socket.send(pack(sent, binary_names=True))
        except self._lost as error:
            raise EngineError(f"{self.url} is gone: {error}") from error
        actions = self._receive()["actions"]
        self._begins = False
        return np.array(actions[0])

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> Any:
        try:
            answer = self._socket.recv(timeout=self.timeout)
            if isinstance(answer, str):
                raise EngineError(f"{self.url} refused the observation: {answer}")
            return unpack(answer, LIMITS)
        except (*self._lost, Refused) as error:
            raise EngineError(f"{self.url} gave no answer: {' '.join(str(error).split())}") from error
