"""Serve a task's environments over HTTP, for runs elsewhere with --task http://HOST:PORT.

Settings of the task follow as --env.NAME VALUE. It listens on this machine alone unless --host says otherwise. The
environment gives defaults: ENV_SERVER_HOST, ENV_SERVER_PORT and ENV_SERVER_TOKEN.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from dataclasses import replace
from typing import Any

from lookact.cli.output import say, show_log
from lookact.cli.parser import Arguments, Parser, positive_int
from lookact.cli.serve import port_number
from lookact.config import check, override
from lookact.errors import ConfigError

log = logging.getLogger(__name__)
TAKES_SETTINGS = True
EXAMPLES = (
    "lookact env-server --task navigation",
    "lookact env-server --task frozen-lake --env.size 6 --port 8101 --max-sessions 512",
    "lookact env-server --task my_task.py:TASK --host 0.0.0.0",
)


def add_options(parser: Parser) -> None:
    given = os.environ.get
    add = parser.add_argument
    add("-h", "--help", action="help", help="show this help")
    add("--task", metavar="T", required=True, help="a task's name, MODULE:NAME or FILE.py:NAME")
    add("--host", metavar="H", default=given("ENV_SERVER_HOST") or "127.0.0.1", help="address (default: 127.0.0.1)")
    add("--port", metavar="P", default=given("ENV_SERVER_PORT") or "8100", help="0 takes a free one (default: 8100)")
    add("--token", metavar="T", default=given("ENV_SERVER_TOKEN") or "", help="demand this bearer token")
    add("--allow-host", metavar="H", action="append", default=[], help="a further name to be asked by; repeatable")
    number: Any = {"metavar": "N", "type": positive_int}
    add("--max-sessions", **number, default=256, help="environments at once; one more gets 429 (default: 256)")
    add("--idle-seconds", **number, default=3600, help="a session not used for so long is closed (default: 3600)")
    add("--request-seconds", **number, default=120, help="an environment that takes longer hangs (default: 120)")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    if importlib.util.find_spec("fastapi") is None or importlib.util.find_spec("uvicorn") is None:
        raise ConfigError("lookact env-server needs fastapi and uvicorn: pip install 'lookact[serve]'")
    from lookact.envs.remote.app import LIMITS, create_app
    from lookact.serving.run import bind, serve
    from lookact.tasks.registry import make_task

    show_log()
    env = task_settings(arguments.task, words)
    limits = replace(LIMITS, request_seconds=arguments.request_seconds)
    bound = bind(arguments.host, port_number(arguments.port))
    host, port = bound.getsockname()[:2]
    if not arguments.token and not host.startswith("127.") and host != "::1":
        log.warning("anyone who can reach %s may use this server: give --token", host)
    app = create_app(
        lambda seed: make_task(env, seed),
        name=arguments.task,
        presets=getattr(env, "presets", {}),
        limits=limits,
        max_sessions=arguments.max_sessions,
        idle_seconds=arguments.idle_seconds,
        token=arguments.token,
        hosts=(arguments.host, *arguments.allow_host),
    )
    say(f"serving {arguments.task} on http://{f'[{host}]' if ':' in host else host}:{port}")
    # whoever started this server may wait for the line
    sys.stdout.flush()
    serve(app, bound, limits)


def task_settings(task: str, words: list[str]) -> Any:
    """The task's settings, given as runs name them: --env.NAME VALUE."""
    from lookact.tasks.registry import find_task

    plain = [f"--{word.removeprefix('--env.')}" if word.startswith("--env.") else word for word in words]
    return check(override(find_task(task)(), plain))
