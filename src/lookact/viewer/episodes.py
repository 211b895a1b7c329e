"""Folders of episodes as records: the list, one episode turn by turn, and its pictures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from lookact.data.jsonl import MANIFEST, read_objects
from lookact.errors import DataError
from lookact.text.file_names import file_name
from lookact.viewer.control_episodes import Row, control_detail, control_episodes
from lookact.viewer.folder import MAX_BYTES, NotFound, check_file, inside, to_json

if TYPE_CHECKING:
    from lookact.types import Episode, Image, Observation, Turn

MAX_MANIFEST = 256 << 20
LISTED = ("scene_id", "question", "group", "seed", "policy_version", "error", "is_valid", "dropout_reason", "success")


def list_stores(root: Path, stores: Sequence[str]) -> list[Row]:
    """Folders of episodes and how many each lists."""
    return [{"place": store, "episodes": _count(inside(root, store))} for store in stores]


def list_episodes(root: Path, store: str) -> list[Row]:
    """One line an episode, in the order of the manifest; lines that are torn are left out."""
    folder = inside(root, store)
    control = control_episodes(folder)
    return control.rows() if control else [_listed(row) for row in manifest_rows(folder)]


def episode_detail(root: Path, store: str, id: str, *, tokenizer: Path | None = None) -> Row:
    """An episode turn by turn, with the reply in tokens; why one cannot be loaded stands under `problem`."""
    folder = inside(root, store)
    control = control_episodes(folder)
    if control:
        listed = next((row for row in control.rows() if row["id"] == id), None)
        if listed is None:
            raise NotFound(f"{store} {id}")
    else:
        listed = _listed(find_row(root, store, id))
    try:
        return control_detail(listed, control.load(id)) if control else _detail(root, store, listed, tokenizer)
    except DataError as error:
        # whoever is sent the page need not know where the folder lies
        problem = str(error).replace(f"{folder}/", "")
        return {**listed, "turns": [], "last": None, "map": None, "problem": problem}


def picture(root: Path, store: str, id: str, turn: int, camera: str) -> bytes:
    """One camera's picture as PNG; the turn after the last one is what was seen at the end."""
    try:
        image = _image(root, store, id, turn, camera) if turn >= 0 else None
    except (DataError, IndexError, KeyError, ValueError):
        image = None
    if image is None:
        raise NotFound(f"{store} {id} {turn} {camera}")
    return _png(image)


def map_picture(root: Path, store: str, id: str) -> bytes:
    """An episode's room from above as PNG."""
    try:
        room = load(root, store, find_row(root, store, id)).floor_map
    except DataError:
        room = None
    if room is None:
        raise NotFound(f"{store} {id} map")
    return _png(room.picture)


def load(root: Path, store: str, row: Row) -> Episode:
    """The episode behind a manifest's row; a file that leads out of the folder is not opened."""
    folder = inside(root, store)
    name = f"{file_name(row['episode_id'])}_tensors.pt"
    try:
        status = check_file(inside(folder, name), MAX_BYTES)
    except (NotFound, OSError):
        raise DataError(f"{name} is missing: the manifest lists it, so the folder was copied in part") from None
    return _load(folder, row["episode_id"], status.st_mtime_ns)


def find_row(root: Path, store: str, id: str) -> Row:
    """The manifest's row of an episode."""
    for row in manifest_rows(inside(root, store)):
        if row["episode_id"] == id:
            return row
    raise NotFound(f"{store} {id}")


def manifest_rows(folder: Path) -> list[Row]:
    """Every whole row of a folder's manifest."""
    try:
        status = check_file(folder / MANIFEST, MAX_MANIFEST)
    except OSError:
        return []
    return _rows(folder / MANIFEST, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=32)
def _rows(path: Path, *identity: int) -> list[Row]:
    return [row for row in read_objects(path)[0] if _is_row(row)]


def _is_row(row: object) -> bool:
    """Whether a line has what the list shows; others are left out."""
    if not (isinstance(row, dict) and isinstance(row.get("episode_id"), str) and isinstance(row.get("turns"), list)):
        return False
    rewards = [turn.get("reward") for turn in row["turns"] if isinstance(turn, dict)]
    return len(rewards) == len(row["turns"]) and all(isinstance(each, float | int | None) for each in rewards)


@lru_cache(maxsize=8)
def _load(folder: Path, id: str, changed: int) -> Episode:
    from lookact.data.episode_store import load_episode

    return load_episode(folder, find_row(folder, ".", id))


def _count(folder: Path) -> int:
    if control := control_episodes(folder):
        return control.count()
    try:
        status = check_file(folder / MANIFEST, MAX_MANIFEST)
    except OSError:
        return 0
    return _lines(folder / MANIFEST, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4096)
def _lines(path: Path, *identity: int) -> int:
    """Whole lines; what they hold need not be read to count them."""
    return path.read_bytes().count(b"\n")


def _png(image: Image) -> bytes:
    import PIL.Image

    held = io.BytesIO()
    PIL.Image.fromarray(image).save(held, "PNG")
    return held.getvalue()


def _image(root: Path, store: str, id: str, turn: int, camera: str) -> Image:
    if control := control_episodes(inside(root, store)):
        frame: Image = control.load(id).images[camera][turn]
        return frame
    episode = load(root, store, find_row(root, store, id))
    seen = [*(each.observation for each in episode.turns), *([episode.last] if episode.last else [])]
    return seen[turn].images[camera]


def _detail(root: Path, store: str, listed: Row, tokenizer: Path | None) -> Row:
    from lookact.viewer.tokens import find_tokenizer

    row = find_row(root, store, listed["id"])
    episode = load(root, store, row)
    found = tokenizer or find_tokenizer(root, inside(root, store))
    turns, running = [], 0.0
    for meta, turn in zip(row["turns"], episode.turns):
        running += turn.reward
        turns.append(_turn(meta, turn, running, found))
    last = episode.last and _seen(episode.last)
    record: Row = to_json({**listed, "turns": turns, "last": last, "map": _mapped(episode), "problem": None})
    return record


def _mapped(episode: Episode) -> Row | None:
    """The size of the room's picture, and where the agent stood in it at every stop: (x, y, yaw), None if unknown."""
    room = episode.floor_map
    if room is None:
        return None
    seen = [*(turn.observation for turn in episode.turns), *([episode.last] if episode.last else [])]
    poses = []
    for state in (observation.state for observation in seen):
        here = None if state is None else (*room.to_pixels(state[:2])[0].tolist(), float(state[2]))
        poses.append(here and [round(value, 3) for value in here])
    return {"height": room.picture.shape[0], "width": room.picture.shape[1], "poses": poses}


def _listed(row: Row) -> Row:
    turns = row["turns"]
    known = {name: row.get(name) for name in LISTED}
    rewards = [turn.get("reward") or 0.0 for turn in turns]
    summed = {"length": len(turns), "return": sum(rewards), "ended": _end(row), "acts": _acts(turns)}
    record: Row = to_json({"id": row["episode_id"], **summed, **known})
    return record


def _acts(turns: list[Row]) -> str:
    """Whether an episode's actions are words or vectors."""
    return "vectors" if turns and turns[0].get("reply", "") is None else "words"


def _end(row: Row) -> str:
    """Why an episode ended, in a word or two."""
    if row.get("error"):
        return "error"
    last = row["turns"][-1] if row["turns"] else {}
    return "terminated" if last.get("terminated") else "truncated" if last.get("truncated") else "cut off"


def _seen(observation: Observation) -> Row:
    cameras = [
        {"name": name, "height": image.shape[0], "width": image.shape[1]} for name, image in observation.images.items()
    ]
    state = None if observation.state is None else [round(float(value), 4) for value in observation.state]
    return {"text": observation.text, "cameras": cameras, "state": state}


def _turn(meta: Row, turn: Turn, running: float, tokenizer: Path | None) -> Row:
    from lookact.viewer.tokens import pieces_of

    decision = turn.decision
    ids = [] if decision.token_ids is None else decision.token_ids.tolist()
    reply = decision.action if isinstance(decision.action, str) else None
    pieces, exact = ([], False) if reply is None else pieces_of(reply, ids, decision.mask.tolist(), tokenizer)
    action = {name: meta.get(name) for name in ("action", "value", "fresh", "masking_method", "info")}
    return {
        **_seen(turn.observation),
        **action,
        "reply": reply,
        "pieces": pieces,
        "exact": exact,
        "tokens": len(ids),
        "counted": int(decision.mask.sum()),
        "logprob": float(decision.logprobs.sum()) if ids else None,
        "reward": turn.reward,
        "running": running,
        "terminated": turn.terminated,
        "truncated": turn.truncated,
    }
