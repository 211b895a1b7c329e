"""Attack `lookact view`: folders full of links, FIFOs, bombs and torn files, and requests for what is none of theirs.

python tools/attack_viewer.py makes a folder in a temporary place, serves it on loopback, and takes about ten seconds.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from attacks import Outcome, ask, attempt, ends_on_sigterm, report, served

SECRET = "PRIVATE-KEY-LINE"
ALIASES = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10))
BOMB = f"l0: &l0 [x, x, x, x, x, x, x, x, x]\n{ALIASES}\n"
DEEP = "[" * 100_000
SURROGATE = '{"step": 1, "a\\ud800": 2, "eval/score": 0.5}\n'
CONFIGS = {
    "bomb": BOMB,
    "deep": DEEP,
    "deep-block": "- " * 50_000 + "x",
    "itself": "a: &a [*a]",
    "number": "a: " + "1:" * 200_000 + "1",
    "huge": f"seed: {'9' * 400}",
    "tagged": "!!python/object/apply:os.system [id]",
    "bytes": "\x00\x01",
}
METRICS = {
    "nested-line": f'{{"step": 1, "a": {DEEP}\n{{"step": 2, "eval/score": 1}}\n',
    "digits": f'{{"step": 1, "eval/score": {"9" * 400}}}\n',
    "more-digits": f'{{"step": 1, "eval/score": {"9" * 9000}}}\n',
    "surrogate": SURROGATE,
    "proto": '{"step": 1, "__proto__": 2, "constructor": 3}\n',
    "endless-step": '{"step": 1e999, "a": NaN}\n',
}
LINKED = ("config.yaml", "training.log", "result.json", "versions.json", "run.json", "metrics.jsonl", ".lock")


def write_hostile_folder(root: Path) -> set[str]:
    """Runs that were made to do harm beside one that is fine, with a secret outside of all; the runs' names."""
    secret = root.parent / "secret"
    secret.write_text(f'{{"step": 1, "password": "{SECRET}"}}\n')
    names = {"fine"}

    def run(name: str) -> Path:
        folder = root / "nav-rloo" / name
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("seed: 0\n")
        (folder / "training.log").write_text("all is well\n")
        (folder / "metrics.jsonl").write_text('{"step": 1, "eval/score": 0.5}\n')
        names.add(name)
        return folder

    fine = run("fine")
    for place in ("samples/a.png", "checkpoint-1/vocab.txt", "best/notes.txt", "warm_start/model/merges.txt"):
        (fine / place).parent.mkdir(parents=True)
        (fine / place).write_bytes(b"bytes")
    for name, text in CONFIGS.items():
        (run(f"config-{name}") / "config.yaml").write_text(text)
    for name, text in METRICS.items():
        (run(f"metrics-{name}") / "metrics.jsonl").write_text(text)
    (run("result-deep") / "result.json").write_text(DEEP)
    for file in LINKED:
        for kind, make in (("link", secret), ("fifo", None), ("zero", Path("/dev/zero"))):
            folder = run(f"{kind}-{file}")
            (folder / file).unlink(missing_ok=True)
            if make:
                (folder / file).symlink_to(make)
            else:
                os.mkfifo(folder / file)
    os.truncate(run("sparse") / "config.yaml", 1 << 40)
    os.truncate(root / "nav-rloo/sparse/metrics.jsonl", 1 << 40)
    for name in ("samples/fifo.png", "samples/link.png"):
        (root / "nav-rloo/fine" / name).symlink_to(secret) if "link" in name else os.mkfifo(
            root / "nav-rloo/fine" / name
        )
    (root / "store").mkdir()
    rows = (
        {"episode_id": "../../secret", "turns": []},
        {"episode_id": 5, "turns": [7]},
        {"episode_id": "x", "turns": [7]},
    )
    (root / "store/episode_manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + DEEP + "\n")
    other_bytes = root / "nav-rloo" / os.fsdecode(b"not-utf8-\xff")
    other_bytes.mkdir()
    (other_bytes / "metrics.jsonl").write_text('{"step": 1}\n')
    return names


def requests(names: set[str]) -> Iterator[tuple[str, dict[str, str], set[int]]]:
    """Routes, queries and the statuses that may come back."""
    for name in sorted(names):
        place = f"nav-rloo/{name}"
        yield "/api/run", {"place": place}, {200, 404}
        yield "/api/log", {"place": place}, {200, 404}
        yield "/api/metrics", {"place": place, "file": "metrics.jsonl"}, {200, 404}
    private = (
        "checkpoint-1/vocab.txt",
        "best/notes.txt",
        "warm_start/model/merges.txt",
        "samples/fifo.png",
        "samples/link.png",
    )
    for place in (
        *(f"nav-rloo/fine/{name}" for name in private),
        "../secret",
        "a" * 300,
        "a/" * 3000,
        "\0",
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ):
        for route in ("/api/media", "/api/run"):
            yield route, {"place": place}, {404}
        yield "/api/episodes", {"store": place}, {200, 404}
    for id in ("../../secret", "x", "a" * 300):
        yield "/api/episode", {"store": "store", "id": id}, {200, 404}
        yield "/api/picture", {"store": "store", "id": id, "turn": "0", "camera": "head"}, {404}


def attack(root: Path) -> Iterator[Outcome]:
    names = write_hostile_folder(root)
    with served("view", str(root), "--port", "0") as (address, process):

        def listing() -> str | None:
            status, body = ask(address, "/api/runs")
            rows = json.loads(body)["runs"] if status == 200 else []
            missing = names - {row["name"] for row in rows}
            return f"status {status}, not listed: {missing}" if missing or SECRET in body.decode() else None

        def one(route: str, words: dict[str, str], expected: set[int]) -> str | None:
            status, body = ask(address, route, **words)
            leaked = SECRET in body.decode("utf-8", "replace")
            return (
                f"status {status}{', leaks the secret' if leaked else ''}" if status not in expected or leaked else None
            )

        yield attempt("the list of runs", listing)
        for route, words, expected in requests(names):
            yield attempt(f"{route} {str(words)[:60]}", partial(one, route, words, expected))
        yield attempt("a page", lambda: None if ask(address, "/static/main.js")[0] == 200 else "no page any more")
        yield attempt(
            "a foreign Host", lambda: None if ask(address, "/api/runs", host="rebind.evil")[0] == 400 else "taken"
        )
        yield "SIGTERM", ends_on_sigterm(process)
    # after the server has ended
    yield attempt("an exported page", lambda: exported(root))


def exported(root: Path) -> str | None:
    from lookact.viewer.export import export

    return "it holds the secret" if SECRET in export(root, most_bytes=1 << 22)[0] else None


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as held:
        sys.exit(report(attack(Path(held) / "runs")))
