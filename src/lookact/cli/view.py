"""Show runs and episodes in the browser: curves, results, settings, pictures, and episodes turn by turn.

FOLDER holds runs, or is one run, or a folder of episodes that lookact collect wrote. The page is served to this machine
alone and only reads; runs under way are followed live. --out writes one file with everything in it instead.
"""

from __future__ import annotations

import importlib.util
import socket
import sys
import threading
import webbrowser
from pathlib import Path

from lookact.cli.output import say
from lookact.cli.parser import Arguments, Parser, positive_int
from lookact.errors import ConfigError

EXAMPLES = (
    "lookact view",
    "lookact view runs/nav-rloo --open",
    "lookact view episodes --tokenizer runs/nav-rloo/small-seed0/best",
    "lookact view runs/nav-rloo/small-seed0 --out seed0.html",
)
HOST, PORT, PORTS = "127.0.0.1", 8600, 40
"""Without --port, the first free one of so many is taken."""
MIB = 1 << 20


def add_options(parser: Parser) -> None:
    add = parser.add_argument
    add("folder", metavar="FOLDER", nargs="?", type=Path, default=Path("runs"), help="what to show (default: runs)")
    add("--port", metavar="P", type=int, help=f"0 takes a free one (default: {PORT}, or the next that is free)")
    add("--open", action="store_true", help="open the browser")
    add("--out", metavar="FILE", type=Path, help="write one HTML file that needs no server and no network")
    add("--max-mb", metavar="N", type=positive_int, default=25, help="how large that file may grow (default: 25)")
    add("--tokenizer", metavar="PATH", type=Path, help="a checkpoint whose tokenizer reads the episodes' tokens")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    from lookact.viewer.folder import open_folder

    root = open_folder(arguments.folder)
    tokenizer = tokenizer_file(arguments.tokenizer)
    if arguments.out:
        write_page(root, arguments.out, arguments.max_mb, tokenizer)
        return
    if importlib.util.find_spec("fastapi") is None or importlib.util.find_spec("uvicorn") is None:
        raise ConfigError(
            "lookact view needs fastapi and uvicorn: pip install 'lookact[serve]', or write a file: --out"
        )
    from lookact.serving.limits import Limits
    from lookact.serving.run import serve
    from lookact.viewer.app import create_app

    bound = take_port(arguments.port)
    address = f"http://{HOST}:{bound.getsockname()[1]}"
    say(f"showing {arguments.folder} on {address} (Ctrl-C ends it)")
    # whoever started this server may wait for the line
    sys.stdout.flush()
    if arguments.open:
        # connections are taken from here on and answered once it serves; a browser in the terminal would wait for that
        bound.listen()
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    serve(create_app(root, tokenizer=tokenizer), bound, Limits(request_seconds=5.0))


def write_page(root: Path, out: Path, megabytes: int, tokenizer: Path | None) -> None:
    """One HTML file with everything in it, and a line on what did not fit."""
    from lookact.viewer.export import export

    page, left_out = export(root, most_bytes=megabytes * MIB, tokenizer=tokenizer)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, encoding="utf-8")
    dropped = (
        f"; left out to stay below {megabytes} MB: {', '.join(left_out)} (--max-mb takes more)" if left_out else ""
    )
    say(f"wrote {out}, {out.stat().st_size / MIB:.1f} MB{dropped}")


def take_port(port: int | None) -> socket.socket:
    """The port that was asked for, or else the first free one."""
    from lookact.serving.run import bind

    if port is not None:
        if not 0 <= port <= 65535:
            raise ConfigError(f"port {port} is not a number from 0 to 65535: set --port")
        return bind(HOST, port)
    for number in range(PORT, PORT + PORTS):
        try:
            return bind(HOST, number)
        except ConfigError:
            continue
    return bind(HOST, 0)


def tokenizer_file(path: Path | None) -> Path | None:
    """The tokenizer.json of a checkpoint folder, or the file itself."""
    if path is None:
        return None
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(f"no tokenizer at {file}: give --tokenizer a checkpoint folder")
    return file
