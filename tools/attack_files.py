"""Attack what reads files: configs, checkpoints, adapters, episodes, recordings, demonstrations and meshes that lie.

python tools/attack_files.py writes into a temporary place and takes about half a minute. A file may be read, or refused
with one line (a LookActError); it may not run code, write outside its folder, end the process or take long.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from attack_viewer import CONFIGS, DEEP
from attacks import Outcome, attempt, report

FUZZED = 40
PATTERNS = ("{chunk_index:01000000000d}", "{x}", "{chunk_index.__class__}", "../{file_index}", "/etc/passwd", "{", "")
ADAPTERS = ("", "{", DEEP, "[]", '{"base_model_name_or_path": 7}', '{"base_model_name_or_path": "HERE"}')
IDS = ("../../escaped", "/tmp/escaped", "..", "", "x" * 5000, "a/b", "a\0b", "%2e%2e/")


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.folder),)


def refuses(work: Callable[[], object], ran: Path) -> str | None:
    """What is wrong where a file was not read, nor refused with one line, or where its code ran."""
    from lookact.errors import LookActError

    with contextlib.suppress(LookActError):
        work()
    return "it ran code" if ran.exists() else None


def configs(place: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    from lookact.config import load_config

    @dataclass(frozen=True)
    class Config:
        seed: int = 0
        l9: tuple[int, ...] = ()

    for name, text in CONFIGS.items():
        path = place / f"{name}.yaml"
        path.write_text(text)
        yield f"config {name}", partial(load_config, Config, path)


def checkpoints(place: Path, ran: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    from lookact.models.vlm.loading import load_chat
    from lookact.models.vlm.sources import check_source

    (place / "stranger").mkdir()
    config = {"model_type": "stranger", "auto_map": {"AutoConfig": "stranger.Config"}}
    (place / "stranger/config.json").write_text(json.dumps(config))
    (place / "stranger/stranger.py").write_text(f"import os\nos.mkdir({str(ran)!r})\nclass Config: pass\n")
    yield "a checkpoint with code", partial(load_chat, place / "stranger")
    for number, text in enumerate(ADAPTERS):
        folder = place / f"adapter-{number}"
        folder.mkdir()
        (folder / "adapter_config.json").write_text(text.replace("HERE", str(folder)))
        yield f"adapter {text[:40]}", partial(check_source, str(folder), "qwen3_vl")
        yield f"adapter {text[:40]}, loaded", partial(load_chat, folder)


def episodes(place: Path, ran: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    from lookact.data.episode_store import EpisodeStore, load_episode
    from lookact.types import Episode

    store = EpisodeStore(place / "deep/store")
    for id in IDS:
        yield f"episode id {id[:20]!r}", partial(store.add, Episode(id, 0, 0, (), None, error="none"))
    (place / "deep/store/bomb_tensors.pt").write_bytes(pickle.dumps(Bomb(ran)))
    yield "a pickle as tensors", partial(load_episode, place / "deep/store", {"episode_id": "bomb"})


def recordings(place: Path, ran: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    import numpy as np

    from lookact.viewer.episodes import list_episodes

    (place / "recorded").mkdir()
    objects = np.array([Bomb(ran)], dtype=object)
    np.savez(place / "recorded/random-0000.npz", texts=objects, counts=objects)
    (place / "recorded/random-0001.npz").write_bytes(b"PK\x03\x04torn")
    yield "a pickle in a recording", partial(list_episodes, place, "recorded")


def demonstrations(place: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    import numpy as np

    from lookact.data.lerobot.read import Demonstration, read_demonstrations
    from lookact.data.lerobot.write import write_demonstrations

    frames, steps = {"head": np.zeros((3, 32, 32, 3), np.uint8)}, np.zeros((3, 2), np.float32)
    write_demonstrations(place / "demos", iter([Demonstration("push", frames, steps, steps)]), fps=10, robot="x")
    info, data = place / "demos/meta/info.json", place / "demos/data/chunk-000/file-000.parquet"
    described, whole, noise = json.loads(info.read_text()), data.read_bytes(), random.Random(0)

    def read(changed: dict[str, Any], content: bytes) -> None:
        info.write_text(json.dumps(described | changed))
        data.write_bytes(content)
        list(read_demonstrations(place / "demos"))

    for pattern in PATTERNS:
        for key in ("data_path", "video_path"):
            yield f"{key} {pattern}", partial(read, {key: pattern}, whole)
    for key in ("features", "fps", "codebase_version"):
        yield f"{key} of a wrong type", partial(read, {key: [7]}, whole)
    for number in range(FUZZED):
        fuzzed = bytearray(whole)
        for _ in range(1 + number % 8):
            fuzzed[noise.randrange(len(fuzzed))] = noise.randrange(256)
        yield f"fuzzed parquet {number}", partial(read, {}, bytes(fuzzed))


def meshes(place: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    from lookact.envs.rooms.ply import read_ply

    header = "ply\nformat {} 1.0\nelement vertex {}\nproperty float x\nproperty float y\nproperty float z\nend_header\n"
    for kind in ("ascii", "binary_little_endian", "binary_none"):
        for count in ("3", "-1", "99999999999999", "x"):
            path = place / f"{kind}{count}.ply"
            path.write_text(header.format(kind, count) + "0 0 0\n")
            yield f"mesh {kind} of {count}", partial(read_ply, path)


def attack(place: Path) -> Iterator[Outcome]:
    place.mkdir()
    ran = place.parent / "ran"
    sources = (
        configs(place),
        checkpoints(place, ran),
        episodes(place, ran),
        recordings(place, ran),
        demonstrations(place),
    )
    for source in (*sources, meshes(place)):
        for name, work in source:
            yield attempt(name, partial(refuses, work, ran))
    strays = {path.name for path in place.parent.iterdir()} - {place.name}
    yield "files outside", f"{strays} were written" if strays else ""


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as held:
        sys.exit(report(attack(Path(held) / "files")))
