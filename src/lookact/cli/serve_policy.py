"""Serve a control policy over websocket: a robot or an evaluation harness sends observations and gets actions.

ws://HOST:PORT/ speaks openpi's message form, ws://HOST:PORT/vla-eval that of vla-eval; GET /health, /metadata and
/metrics are over HTTP. CHECKPOINT is one of vla-ppo or world-duel, or a run of theirs. It listens on this machine alone
unless --host says otherwise. The environment gives defaults: POLICY_SERVER_HOST, POLICY_SERVER_PORT and
POLICY_SERVER_TOKEN.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookact.cli.output import say, show_log
from lookact.cli.parser import Arguments, Parser, positive_int
from lookact.cli.recipes import checkpoint_in, existing, load_settings, trained_by
from lookact.cli.serve import port_number
from lookact.errors import ConfigError, DataError
from lookact.extras import missing, pip_install

if TYPE_CHECKING:
    from lookact.protocols import ControlPolicy
    from lookact.rollout.policy_server.observations import PolicyFacts

log = logging.getLogger(__name__)
EXAMPLES = (
    "lookact serve-policy runs/vla-ppo/small-seed0",
    "lookact serve-policy runs/vla-ppo/small-seed0/best --port 8201 --rename observation/image=head",
    "lookact serve-policy runs/world-duel/small-seed0 --sample --host 0.0.0.0",
)


def add_options(parser: Parser) -> None:
    given = os.environ.get
    add = parser.add_argument
    add("checkpoint", metavar="CHECKPOINT", type=Path, help="a checkpoint folder, or a run's: its best, else newest")
    host = given("POLICY_SERVER_HOST") or "127.0.0.1"
    add("--host", metavar="H", default=host, help="address (default: 127.0.0.1)")
    port = given("POLICY_SERVER_PORT") or "8200"
    add("--port", metavar="P", default=port, help="0 takes a free one (default: 8200)")
    add("--token", metavar="T", default=given("POLICY_SERVER_TOKEN") or "", help="demand this token")
    add("--allow-host", metavar="H", action="append", default=[], help="a further name to be asked by; repeatable")
    add("--device", metavar="D", default="cpu", help="cpu, cuda or cuda:1 (default: cpu)")
    add("--sample", action="store_true", help="draw actions from the policy instead of taking the likeliest")
    add("--seed", metavar="N", type=int, default=0, help="of what is drawn with --sample (default: 0)")
    rename = "a client's name of what the policy knows as OWN; repeatable"
    add("--rename", metavar="NAME=OWN", action="append", default=[], help=rename)
    number: Any = {"metavar": "N", "type": positive_int}
    add("--batch", **number, default=16, help="observations acted on together (default: 16)")
    add("--max-sessions", **number, default=64, help="connections at once; one more gets 429 (default: 64)")
    add("--idle-seconds", **number, default=600, help="a connection silent for so long is closed (default: 600)")
    add("--request-seconds", **number, default=30, help="an observation waits at most so long (default: 30)")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    if absent := missing("policy"):
        raise ConfigError(f"lookact serve-policy needs {', '.join(absent)}: {pip_install('policy')}")
    from lookact.rollout.policy_server.app import LIMITS, create_app
    from lookact.serving.run import bind, serve

    show_log()
    renames = read_renames(arguments.rename)
    limits = replace(LIMITS, batch=arguments.batch, request_seconds=arguments.request_seconds)
    bound = bind(arguments.host, port_number(arguments.port))
    host, port = bound.getsockname()[:2]
    if not arguments.token and not host.startswith("127.") and host != "::1":
        log.warning("anyone who can reach %s may use this server: give --token", host)
    policy, facts = load_policy(arguments.checkpoint, device=arguments.device, greedy=not arguments.sample)
    app = create_app(
        policy,
        facts,
        renames=renames,
        limits=limits,
        max_sessions=arguments.max_sessions,
        idle_seconds=arguments.idle_seconds,
        seed=arguments.seed,
        token=arguments.token,
        hosts=(arguments.host, *arguments.allow_host),
    )
    say(f"serving {arguments.checkpoint} on http://{f'[{host}]' if ':' in host else host}:{port}")
    # whoever started this server may wait for the line
    sys.stdout.flush()
    serve(app, bound, limits, websockets=True)


def read_renames(words: list[str]) -> dict[str, str]:
    """NAME=OWN, each once."""
    pairs = [word.partition("=") for word in words]
    if odd := [name + sign + own for name, sign, own in pairs if not (name and own)]:
        raise ConfigError(f"--rename {odd[0]}: give a client's name and the policy's, as in observation/image=head")
    return {name: own for name, _, own in pairs}


def load_policy(path: Path, *, device: str, greedy: bool) -> tuple[ControlPolicy, PolicyFacts]:
    """The policy of a checkpoint, or of a run's best one, and what clients must know of it."""
    checkpoint = checkpoint_in(existing(path, "checkpoint") or path) or path
    recipe = "vla-ppo" if (checkpoint / "vla.json").is_file() else trained_by(checkpoint, "world-duel")
    if recipe not in ("vla-ppo", "world-duel"):
        raise DataError(f"{path} holds no control policy: give a checkpoint of vla-ppo or world-duel")
    if recipe == "world-duel":
        return load_explorer(checkpoint, device=device, greedy=greedy)
    from lookact.models.vla.checkpoint import load_vla
    from lookact.rollout.policy_server.observations import PolicyFacts

    policy = load_vla(checkpoint, device=device)
    policy.freeze_encoders()
    spec, size = policy.spec, policy.vision_encoder.spec.image_size
    remembers = bool(spec.memory or spec.history)
    return policy, PolicyFacts(recipe, spec.cameras, size, spec.state_size, spec.action_size, greedy, remembers)


def load_explorer(checkpoint: Path, *, device: str, greedy: bool) -> tuple[ControlPolicy, PolicyFacts]:
    """world-duel's explorer: the wrist camera alone."""
    from lookact.config import load_config
    from lookact.recipes.world_duel.evaluate import open_explorer
    from lookact.rollout.policy_server.observations import PolicyFacts
    from lookact.training.run_files import saved_config

    settings, saved = load_settings("world-duel"), saved_config(checkpoint)
    if saved is None or not (checkpoint / "student").is_dir():
        raise DataError(f"{checkpoint} has no explorer: train phase student or all")
    cfg = load_config(settings.Config, saved, settings.PRESETS["debug"], recipe="world-duel")
    explorer = open_explorer(cfg, checkpoint)
    explorer.to(device).requires_grad_(False)
    spec, model = explorer.spec, explorer.model.spec
    sizes = (model.vq.image_size, model.state_size, spec.action_size)
    return explorer, PolicyFacts("world-duel", spec.cameras, *sizes, greedy, True)
