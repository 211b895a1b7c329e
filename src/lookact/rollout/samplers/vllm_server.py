"""vLLM in a process of its own, started here or running already, asked over HTTP with token ids in and out.

The server reads weights from a folder that both sides see. It keeps no conversation: a server that crashed or hangs is
replaced by one that starts from the newest weights, and is asked again for the replies that are still missing.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from torch import Tensor

from lookact.errors import EngineError
from lookact.judges.client import encode_png
from lookact.models.vlm.loading import write_tensors
from lookact.rollout.samplers.server_process import KEY, KeyMiddleware, RunningServer, ServerProcess
from lookact.rollout.samplers.settings import VllmSpec
from lookact.rollout.samplers.vllm import ENVIRONMENT, KEEP_WEIGHTS, agreed_norms, require_vllm, version_of
from lookact.types import TokenPrompt, TokenReply

logger = logging.getLogger(__name__)
UNKNOWN = -1
GENERATE = "/inference/v1/generate"
MIDDLEWARE = f"{KeyMiddleware.__module__}.{KeyMiddleware.__qualname__}"
PNG = "data:image/png;base64,"


@dataclass(frozen=True)
class _Request:
    number: int
    prompt: TokenPrompt
    params: Mapping[str, Any]
    tries: int = 0
    server: int = 0
    """Which of the servers it was sent to last, the first one being 1."""


class VllmServer:
    """A `TokenEngine` over vLLM's own server; it starts from a checkpoint folder, and weights go beside that."""

    def __init__(self, start: Path, arguments: Mapping[str, Any], spec: VllmSpec) -> None:
        if not spec.url:
            require_vllm()
        self.weights, self.arguments, self.spec = start, arguments, spec
        # adapters are sent beside the base, which stays
        self.base = start if arguments.get("enable_lora") else None
        self.folder, self.version = start.parent, UNKNOWN
        key = os.environ[KEY] if spec.url else secrets.token_hex(24)
        env = {**ENVIRONMENT, KEY: key}
        log = self.folder / "server.log"
        self.process: ServerProcess | RunningServer = (
            RunningServer(spec.url, timeout_s=spec.start_timeout_s)
            if spec.url
            else ServerProcess(self._command, log=log, timeout_s=spec.start_timeout_s, env=env)
        )
        self._http = httpx.Client(
            timeout=spec.reply_timeout_s,
            limits=httpx.Limits(max_connections=spec.max_num_seqs, max_keepalive_connections=spec.max_num_seqs),
            headers={"Authorization": f"Bearer {key}"},
            trust_env=False,
        )
        self._pool = ThreadPoolExecutor(spec.max_num_seqs, thread_name_prefix="ask")
        self._sent: dict[Future[TokenReply | None], _Request] = {}
        self._number = 0
        self.process.start()

    def submit(self, prompt: TokenPrompt, params: Mapping[str, Any]) -> int:
        self._number += 1
        self._send(_Request(self._number, prompt, params))
        return self._number

    def poll(self, timeout_s: float | None) -> list[tuple[int, TokenReply]]:
        """Replies that came; those that a server took with it are asked for again, of a new one."""
        done, _ = wait(self._sent, timeout_s, FIRST_COMPLETED)
        came = [(self._sent.pop(future), future.result()) for future in done]
        lost = [request for request, reply in came if reply is None]
        # from this thread: a server ends with the thread that started it
        if any(request.server == self.process.starts for request in lost):
            logger.warning("%d replies are missing: the server is gone or hangs", len(lost))
            self.restart()
        for request in lost:
            self._send(request)
        return sorted((request.number, reply) for request, reply in came if reply is not None)

    def _send(self, request: _Request) -> None:
        if request.tries > self.spec.max_restarts:
            raise EngineError(
                f"the server failed {request.tries} times on one reply: see {self.process.log} for its reasons"
            )
        sent = replace(request, tries=request.tries + 1, server=self.process.starts)
        self._sent[self._pool.submit(self._ask, sent.prompt, sent.params)] = sent

    def load(self, state: Mapping[str, Tensor], version: int) -> dict[str, float]:
        before, self.weights = self.weights, self._place(state, version)
        self.version = version
        norms: dict[str, float] = {}
        for attempt in range(self.spec.max_restarts + 1):
            try:
                norms = self._rpc("read_folder", str(self.weights.resolve()))
                self._forget()
                self._name()
                break
            except httpx.HTTPError as error:
                if attempt == self.spec.max_restarts:
                    raise EngineError(f"the server did not take over weights {version}: {error}") from error
                self.process.restart()
        if before not in (self.weights, self.base):
            shutil.rmtree(before, ignore_errors=True)
        return norms

    def restart(self) -> None:
        """A new server with the newest weights under their version's name."""
        self.process.restart()
        # somebody else's server begins with the weights that it was started with
        begun_with = self.base or (None if self.spec.url else self.weights)
        if self.weights != begun_with:
            self._rpc("read_folder", str(self.weights.resolve()))
        self._name()

    def sleep(self) -> None:
        if self.spec.sleep:
            self._post(f"/sleep?level={KEEP_WEIGHTS}")

    def wake(self) -> None:
        if self.spec.sleep:
            torch.cuda.empty_cache()
            self._post("/wake_up")

    def close(self) -> None:
        self.process.stop()
        self._pool.shutdown(cancel_futures=True)
        self._http.close()

    def _command(self, port: int) -> list[str]:
        words = [word for name, value in self.arguments.items() for word in option(name, value)]
        # a process of the same environment, so that it finds this package's worker extension
        server = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enable-scale-out"]
        server += ["--host", "127.0.0.1", "--port", str(port), "--middleware", MIDDLEWARE]
        return [*server, "--model", str(self.base or self.weights), *words]

    def _ask(self, prompt: TokenPrompt, params: Mapping[str, Any]) -> TokenReply | None:
        """The reply, or None where the server is gone or hangs; a request that it refuses raises."""
        body = {
            "token_ids": prompt.ids,
            "content_parts": [{"type": "image_url", "url": f"{PNG}{encode_png(image)}"} for image in prompt.images],
            "sampling_params": {**params, "seed": prompt.seed},
            "return_token_ids": True,
        }
        try:
            answer = self._http.post(self.process.url + GENERATE, json=body)
        except httpx.TransportError:
            return None
        if answer.is_server_error:
            logger.warning("the server answered %d: %s", answer.status_code, answer.text[:200])
            return None
        if answer.is_error:
            raise EngineError(f"the server refused a prompt of {len(prompt.ids)} tokens: {answer.text[:300]}")
        return read_reply(answer.json())

    def _rpc(self, method: str, *words: str) -> dict[str, float]:
        answer = self._post("/collective_rpc", {"method": method, "args": list(words)})
        return agreed_norms(answer.json()["results"])

    def _forget(self) -> None:
        """What was computed with old weights: keys and values of prompts, and images as the old model saw them."""
        for cache in ("prefix", "mm", "encoder"):
            self._post(f"/reset_{cache}_cache")

    def _name(self) -> None:
        self._post("/update_weight_version", {"new_version": str(self.version)})

    def _post(self, path: str, body: Any = None) -> httpx.Response:
        return self._http.post(self.process.url + path, json=body).raise_for_status()

    def _place(self, state: Mapping[str, Tensor], version: int) -> Path:
        """The last checkpoint with new tensors, under its own name only when it is whole."""
        folder, parts = self.folder / f"weights-{version}", self.folder / ".writing"
        shutil.rmtree(parts, ignore_errors=True)
        shutil.copytree(self.weights, parts, ignore=shutil.ignore_patterns("*.safetensors"))
        write_tensors(state, parts)
        shutil.rmtree(folder, ignore_errors=True)
        return parts.rename(folder)


def option(name: str, value: Any) -> list[str]:
    """An engine argument as words of a command line."""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    if isinstance(value, list):
        return [flag, *map(str, value)]
    return [flag, json.dumps(value) if isinstance(value, dict) else str(value)]


def read_reply(answer: Mapping[str, Any]) -> TokenReply:
    """The one reply of a generate call's answer."""
    choice = answer["choices"][0]
    return TokenReply(
        prompt_ids=np.asarray(answer["prompt_token_ids"], dtype=np.int64),
        token_ids=np.asarray(choice["token_ids"], dtype=np.int64),
        logprobs=np.asarray([unit["logprob"] for unit in choice["logprobs"]["content"]], dtype=np.float32),
        version=version_of(span["version"] for span in choice["weight_versions"]),
    )
