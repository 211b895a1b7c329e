"""A judge behind a server: the embedded one, which this run starts and starts again, or one that somebody else runs.

Every reply is kept on disk as it comes. A server that dies in the middle costs the replies that were not there yet:
those are asked again, the others are read, and each pair is counted once.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lookact.errors import EngineError, JudgeError
from lookact.judges.client import ClientSpec, JudgeClient, server_url
from lookact.judges.vlm_judge import Pair, ReplyCache, VLMJudge
from lookact.recipes.pref_sac.config import Asking
from lookact.recipes.pref_sac.judge import judge_name
from lookact.rollout.samplers.server_process import ServerProcess
from lookact.types import Preference

logger = logging.getLogger(__name__)
QUICK = 2.0
"""Seconds after which a server of our own is looked after: whether its process lives is known at once."""
START = 600.0
"""Seconds in which it must be up, on a machine that may be busy."""


class JudgeService:
    """A `Judge` that outlives its server; with a checkpoint, the server is its own."""

    def __init__(self, asking: Asking, *, checkpoint: Path | None, folder: Path) -> None:
        self.asking = asking
        self.server = None if checkpoint is None else own_server(checkpoint, folder / "server.log", asking)
        self.cache = ReplyCache(folder / "replies")
        self.judge = VLMJudge(self._connect(), variant=asking.variant, cache=self.cache)

    @property
    def counts(self) -> dict[str, int]:
        """What was asked and what came of it, as `VLMJudge` counts."""
        return dict(self.judge.counts)

    def compare(self, pairs: Sequence[Pair], goal: str) -> list[Preference]:
        """A verdict for every pair; returns only when the server has answered all of them."""
        while True:
            try:
                return self.judge.compare(pairs, goal)
            except JudgeError as error:
                if self.asking.lost == "stop":
                    raise
                logger.warning("waiting for the judge: %s", error)
                self._revive()

    def state_dict(self) -> dict[str, Any]:
        return self.judge.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.judge.load_state_dict(state)

    def close(self) -> None:
        """Ends the connection, and the server where it is our own."""
        self.judge.client.close()
        if self.server is not None:
            self.server.stop()

    def _connect(self) -> JudgeClient:
        """A client of the server; our own is started first."""
        if self.server is not None and not self.server.healthy():
            try:
                self.server.restart()
            except EngineError as error:
                raise JudgeError(f"the embedded judge cannot be served: {error}") from error
        own = self.server is not None
        url = self.server.url if self.server is not None else self.asking.url or server_url()
        return JudgeClient(
            ClientSpec(
                url=url,
                token="" if own else os.environ.get("SERVER_TOKEN", ""),
                patience=min(QUICK, self.asking.patience) if own else self.asking.patience,
                concurrency=self.asking.concurrency,
            )
        )

    def _revive(self) -> None:
        """A new server in place of our own, and a new connection to it; another's server is left to its owner."""
        if self.server is not None:
            self.judge.client.close()
            self.judge.client = self._connect()


def own_server(checkpoint: Path, log: Path, asking: Asking) -> ServerProcess:
    """`lookact serve` of a checkpoint on a free port of this machine; it ends with this process."""
    name = judge_name(checkpoint)

    def command(port: int) -> list[str]:
        words = ["serve", "--model", str(checkpoint), "--name", name, "--host", "127.0.0.1", "--port", str(port)]
        return [sys.executable, "-m", "lookact", *words, "--batch", str(max(16, asking.concurrency))]

    # what the environment says of another server is not for ours; one thread, since training needs the other cores
    quiet = {"SERVER_TOKEN": "", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return ServerProcess(command, log=log, timeout_s=max(START, asking.patience), env=quiet)
