"""The page itself: a document, a style sheet and modules of JavaScript, served apart or put into one file."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
STATIC_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
MAIN = "main.js"
ALONE = "default-src 'unsafe-inline' data:"
"""What one file may load: nothing but itself."""
_IMPORT = re.compile(r'^import (?:\{[^}]*\} from )?"\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|const|let|class)", re.MULTILINE)


@cache
def static_files() -> dict[str, bytes]:
    """The page's files by name."""
    return {path.name: path.read_bytes() for path in sorted(STATIC.iterdir()) if path.suffix in STATIC_TYPES}


def bundle(main: str = MAIN) -> str:
    """All modules as one, each after those that it imports; names at their top level must differ."""
    order: list[str] = []

    def add(name: str) -> None:
        if name not in order:
            for needed in _IMPORT.findall(static_files()[name].decode()):
                add(needed)
            order.append(name)

    add(main)
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", static_files()[name].decode())) for name in order)


def one_page(data: str) -> str:
    """The whole viewer as one document that holds its data; `data` is JSON."""
    page = static_files()["index.html"].decode()
    style = static_files()["style.css"].decode()
    # "</" would end the script early, wherever it stands in the data
    held = data.replace("<", "\\u003c")
    scripts = (
        f'<script type="application/json" id="embedded">{held}</script>\n<script type="module">\n{bundle()}\n</script>'
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{ALONE}">\n<style>\n{style}\n</style>'
    page = page.replace('<link rel="stylesheet" href="static/style.css">', head)
    return page.replace('<script type="module" src="static/main.js"></script>', scripts)
