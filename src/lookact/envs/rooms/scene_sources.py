"""Where recorded scenes come from, by name: an ARKitScenes folder, or one room of a file of scene notes, FILE.json#ID.

Scenes of VSI-Bench are for evaluation: training in them is refused unless `train_on_test` says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from lookact.envs.rooms.benchmark_scenes import why_test
from lookact.errors import ConfigError, DataError
from lookact.seeding import derive

NOTES = ".json"
BETWEEN = f"{NOTES}#"
ANNOTATION = "_3dod_annotation.json"
EVALUATION_SPLITS = ("validate", "test", "check")


def scene_sources(scenes: Sequence[str], ids: Sequence[str] = ()) -> tuple[str, ...]:
    """One name for each scene of folders and files of notes; of those, where `ids` are given, the scenes so called."""
    found = [name for scene in scenes for name in ([scene] if not is_notes(scene) else _rooms(scene))]
    if missing := set(ids) - {scene_id(name) for name in found}:
        raise ConfigError(f"no scene is called {', '.join(sorted(missing))}: {len(found)} are given, none of that id")
    return tuple(name for name in found if not ids or scene_id(name) in ids)


def is_notes(scene: str) -> bool:
    """Whether a name is that of a whole file of scene notes."""
    return scene.endswith(NOTES)


def scene_id(source: str) -> str:
    """What the scene is called: the id in the notes, or the folder's name."""
    return source.rsplit("#", 1)[1] if BETWEEN in source else Path(source).name


def for_split(sources: Sequence[str], split: str, *, held_out: float, train_on_test: bool) -> tuple[str, ...]:
    """The scenes of a split. Of each the id decides whether it is among the share that is held out from training."""
    evaluation = split in EVALUATION_SPLITS
    if not evaluation and not train_on_test:
        refuse_benchmark(sources)
    if not held_out:
        return tuple(sources)
    chosen = tuple(name for name in sources if (_draw(scene_id(name)) < held_out) == evaluation)
    if not chosen:
        raise ConfigError(f"held_out_scenes {held_out:g} leaves none of {len(sources)} scenes for '{split}': change it")
    return chosen


def refuse_benchmark(sources: Sequence[str]) -> None:
    """Raise if one of the scenes is VSI-Bench's."""
    for source in sources:
        if why := _why_test(source):
            raise ConfigError(f"{source}: {why}, which is not for training; evaluate on it, or set train_on_test true")


def _why_test(source: str) -> str:
    """Why a scene is not for training, or nothing where it is; a folder counts by its name and by its files'."""
    if BETWEEN in source:
        path, name = source.rsplit("#", 1)
        return why_test(*_origins(path)[name], name)
    found = (file.name.removesuffix(ANNOTATION) for file in Path(source).glob(f"*{ANNOTATION}"))
    return next(filter(None, (why_test(None, None, name) for name in (scene_id(source), *found))), "")


def _draw(name: str) -> float:
    return derive(0, "held out", name) / 2**63


def _rooms(path: str) -> list[str]:
    return [f"{Path(path).resolve()}#{name}" for name in _origins(path)]


def file_version(path: str | Path) -> tuple[str, int]:
    """A file's absolute path and when it was last changed: what its content may be remembered by."""
    whole = Path(path).resolve()
    return str(whole), whole.stat().st_mtime_ns if whole.is_file() else 0


def _origins(path: str) -> dict[str, tuple[str | None, str | None]]:
    """The dataset and the split of each room of a file of notes."""
    return _read_origins(*file_version(path))


@lru_cache(maxsize=8)
def _read_origins(path: str, changed: int) -> dict[str, tuple[str | None, str | None]]:
    try:
        content = json.loads(Path(path).read_text())
        return {name: (room.get("dataset"), room.get("split")) for name, room in content.items()}
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, AttributeError) as error:
        raise DataError(f"{path}: is not a file of scene notes ({type(error).__name__})") from None
