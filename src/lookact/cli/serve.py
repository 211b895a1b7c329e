"""Serve a vision-language model over HTTP: POST /v1/chat/completions as OpenAI's clients send it, POST /generate,
GET /health, /metrics and /v1/models. Requests of several clients are answered in batches.

It listens on this machine alone unless --host says otherwise. The environment gives defaults: SERVER_HOST, SERVER_PORT,
SERVER_TOKEN and LOCAL_MODEL_PATH.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from lookact.cli.output import say, show_log
from lookact.cli.parser import Arguments, Parser, positive_int
from lookact.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lookact.judges.server.batching import Generate, Prompt, Reply
    from lookact.rollout.samplers.chat_engine import ChatEngine

log = logging.getLogger(__name__)

EXAMPLES = (
    "lookact serve --model runs/pref-sac/small-seed0/judge/model",
    "lookact serve --model Qwen/Qwen3-VL-8B-Instruct --device cuda --dtype bfloat16 --quantise nf4 --port 8001",
    "lookact serve --model judge --host 0.0.0.0 --max-image-tokens 1280 --batch 32",
)
CELL = 32
"""Qwen3-VL takes one token for 32x32 pixels."""


def add_options(parser: Parser) -> None:
    given = os.environ.get
    add = parser.add_argument
    add("--model", metavar="M", default=given("LOCAL_MODEL_PATH"), help="a checkpoint folder or a Hub name")
    add("--name", metavar="N", help="what clients call the model (default: as --model)")
    add("--host", metavar="H", default=given("SERVER_HOST") or "127.0.0.1", help="address (default: 127.0.0.1)")
    add("--port", metavar="P", default=given("SERVER_PORT") or "8000", help="0 takes a free one (default: 8000)")
    add("--token", metavar="T", default=given("SERVER_TOKEN") or "", help="demand this bearer token")
    add("--allow-host", metavar="H", action="append", default=[], help="a further name to be asked by; repeatable")
    add("--device", metavar="D", default="cpu", help="cpu, cuda, cuda:1 or auto (default: cpu)")
    add("--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="(default: float32)")
    add("--quantise", choices=("nf4",), help="4-bit weights")
    number: Any = {"metavar": "N", "type": positive_int}
    add("--min-image-tokens", **number, help="smaller images grow to as many cells of 32x32 pixels")
    add("--max-image-tokens", **number, help="larger images shrink to as many cells of 32x32 pixels")
    add("--max-context", **number, default=8192, help="tokens of prompt and reply (default: 8192)")
    add("--max-tokens", **number, default=1024, help="tokens of a reply (default: 1024)")
    add("--batch", **number, default=16, help="requests answered together (default: 16)")
    add("--queue", **number, default=128, help="requests that may wait; one more gets 429 (default: 128)")
    add("--verbose", action="store_true", help="log every prompt's text and what the model said")
    add("--request-seconds", **number, default=120, help="a request that takes longer gets 504 (default: 120)")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    if importlib.util.find_spec("fastapi") is None or importlib.util.find_spec("uvicorn") is None:
        raise ConfigError("lookact serve needs fastapi and uvicorn: pip install 'lookact[serve]'")
    if not arguments.model:
        raise ConfigError("no model to serve: give --model, or set LOCAL_MODEL_PATH")
    from lookact.judges.server.app import create_app
    from lookact.serving.limits import Limits
    from lookact.serving.run import bind, serve

    show_log()
    limits = Limits(**{name: getattr(arguments, name) for name in ("batch", "queue", "max_tokens", "request_seconds")})
    bound = bind(arguments.host, port_number(arguments.port))
    host, port = bound.getsockname()[:2]
    if not arguments.token and not host.startswith("127.") and host != "::1":
        log.warning("anyone who can reach %s may use this server: give --token", host)
    engine = load_engine(arguments)
    hosts = (arguments.host, *arguments.allow_host)
    model = arguments.name or arguments.model
    generate = log_replies(engine) if arguments.verbose else engine
    app = create_app(generate, model=model, limits=limits, token=arguments.token, hosts=hosts)
    say(f"serving {arguments.model} on http://{f'[{host}]' if ':' in host else host}:{port}")
    # whoever started this server may wait for the line
    sys.stdout.flush()
    serve(app, bound, limits)


def load_engine(arguments: Arguments) -> ChatEngine:
    """The model, ready to answer."""
    from lookact.models.vlm.loading import load_chat
    from lookact.rollout.samplers.chat_engine import ChatEngine

    def pixels(tokens: int | None) -> int | None:
        return None if tokens is None else tokens * CELL * CELL

    placed = {"device_map": "auto"} if arguments.device == "auto" else {"device": arguments.device}
    chat = load_chat(
        arguments.model,
        dtype=arguments.dtype,
        quantise=arguments.quantise,
        min_pixels=pixels(arguments.min_image_tokens),
        max_pixels=pixels(arguments.max_image_tokens),
        **placed,
    )
    return ChatEngine(chat, max_context=arguments.max_context)


def log_replies(generate: Generate) -> Generate:
    """The same, and each prompt's text and reply are logged as it is answered."""

    def told(prompts: Sequence[Prompt], dropped: Callable[[int], bool]) -> Iterator[tuple[int, Reply]]:
        for index, reply in generate(prompts, dropped):
            parts = [part for message in prompts[index].messages for part in message.parts]
            asked = " ".join(
                part if isinstance(part, str) else f"[image {part.shape[1]}x{part.shape[0]}]" for part in parts
            )
            if reply.finish:
                log.info("asked: %s\nsaid: %s", asked, reply.error or reply.text)
            yield index, reply

    return told


def port_number(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise ConfigError(f"port {text} is not a number from 0 to 65535: set --port or SERVER_PORT")
    return int(text)
