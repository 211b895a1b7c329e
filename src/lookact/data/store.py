"""Episodes on disk: a manifest to read with any tool, and tensors that load without pickle.

`episode_manifest.jsonl` holds one line an episode; `{episode_id}_tensors.pt` its arrays. The manifest line is
written last, so an interrupted collection never lists an episode whose tensors are not there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lookact.data.manifest import MANIFEST
from lookact.data.quality import judge_quality
from lookact.errors import DataError, ParseError
from lookact.text.action_mask import CONFIDENCE
from lookact.text.actions import parse_json_object, reasoning_of
from lookact.types import Decision, Episode, Observation, Turn


class EpisodeStore:
    """A folder of episodes that can be appended to, interrupted and read back equal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._drop_torn_line()

    def ids(self) -> set[str]:
        """Episodes already complete on disk."""
        return {row["episode_id"] for row in self.rows()}

    def rows(self) -> Iterator[dict[str, Any]]:
        path = self.folder / MANIFEST
        if not path.exists():
            return
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{path} line {number} is not JSON: remove the line and collect again") from error

    def add(self, episode: Episode) -> None:
        """Tensors first, then the manifest line."""
        path = self.folder / f"{episode.id}_tensors.pt"
        temporary = path.with_suffix(".partial")
        torch.save({"turns": list(_tensors(episode)), "last": _observed(episode.last)}, temporary)
        temporary.replace(path)
        with (self.folder / MANIFEST).open("a") as manifest:
            manifest.write(json.dumps(_row(episode)) + "\n")
            manifest.flush()
            os.fsync(manifest.fileno())

    def load(self, row: Mapping[str, Any]) -> Episode:
        """The episode behind a manifest row, equal to the one that was added."""
        return load_episode(self.folder, row)

    def episodes(self) -> Iterator[Episode]:
        return (self.load(row) for row in self.rows())

    def _drop_torn_line(self) -> None:
        path = self.folder / MANIFEST
        if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
            path.write_bytes(content[: content.rfind(b"\n") + 1])


def load_episode(folder: Path, row: Mapping[str, Any]) -> Episode:
    """The same without opening the store, which mends it: for who may only look."""
    path = folder / f"{row['episode_id']}_tensors.pt"
    try:
        saved = torch.load(path, weights_only=True)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: the manifest lists it, so the folder was copied in part") from error
    except Exception as error:
        raise DataError(f"{path} can't be read ({error}): delete its manifest line and collect again") from error
    turns = tuple(_turn(meta, arrays) for meta, arrays in zip(row["turns"], saved["turns"]))
    return Episode(
        id=row["episode_id"],
        group=row["group"],
        seed=row["seed"],
        turns=turns,
        last=_observation(row["last_text"], saved["last"]) if row["last_text"] is not None else None,
        policy_version=row["policy_version"],
        error=row["error"],
    )


def _row(episode: Episode) -> dict[str, Any]:
    quality = judge_quality(episode)
    info = episode.turns[0].info if episode.turns else {}
    return {
        "episode_id": episode.id,
        "scene_id": info.get("scene_id", ""),
        "question_id": info.get("question_id", ""),
        "question": info.get("question", episode.turns[0].observation.text if episode.turns else ""),
        "num_turns": len(episode.turns),
        "terminal_reward": episode.turns[-1].reward if episode.turns else 0.0,
        "is_valid": quality.is_valid,
        "masking_quality": quality.quality,
        "dropout_reason": quality.dropout_reason,
        "group": episode.group,
        "seed": episode.seed,
        "policy_version": episode.policy_version,
        "error": episode.error,
        "last_text": None if episode.last is None else episode.last.text,
        "turns": [_turn_row(index, turn) for index, turn in enumerate(episode.turns)],
    }


def _turn_row(index: int, turn: Turn) -> dict[str, Any]:
    decision = turn.decision
    reply = str(decision.action)
    state = turn.observation.state
    return {
        "turn_index": index,
        "observation": {
            "text": turn.observation.text,
            "cameras": list(turn.observation.images),
            "state": None if state is None else [float(x) for x in state],
        },
        "action": _action(reply),
        "reasoning": reasoning_of(reply),
        "reply": reply,
        "num_action_tokens": int(decision.mask.sum()),
        "masking_method": decision.mask_method,
        "masking_confidence": CONFIDENCE.get(decision.mask_method, 0.0),
        "fresh": decision.fresh,
        "value": decision.value,
        "reward": turn.reward,
        "terminated": turn.terminated,
        "truncated": turn.truncated,
        "info": _plain(turn.info),
    }


def _action(reply: str) -> dict[str, Any] | None:
    try:
        return parse_json_object(reply)
    except ParseError:
        return None


def _plain(value: Any) -> Any:
    """JSON's own types only."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _observed(observation: Observation | None) -> dict[str, Any]:
    if observation is None:
        return {"images": {}}
    arrays = {"depth": observation.depth, "state": observation.state}
    return {
        "images": {name: torch.from_numpy(np.ascontiguousarray(image)) for name, image in observation.images.items()},
        **{key: torch.from_numpy(np.ascontiguousarray(array)) for key, array in arrays.items() if array is not None},
    }


def _observation(text: str, saved: Mapping[str, Any]) -> Observation:
    arrays = {key: saved[key].numpy() for key in ("depth", "state") if key in saved}
    return Observation(text=text, images={name: image.numpy() for name, image in saved["images"].items()}, **arrays)


def _tensors(episode: Episode) -> Iterator[dict[str, Any]]:
    context = 0
    for turn in episode.turns:
        decision = turn.decision
        if decision.token_ids is None or decision.prompt_ids is None:
            raise DataError(f"episode {episode.id} holds no token ids: only a token policy's episodes are stored here")
        context = len(decision.prompt_ids) + (0 if decision.fresh else context)
        yield {
            "generated_ids": torch.from_numpy(decision.token_ids),
            "action_token_mask": torch.from_numpy(decision.mask),
            "input_token_length": context,
            "prompt_ids": torch.from_numpy(decision.prompt_ids),
            "logprobs": torch.from_numpy(decision.logprobs),
            **_observed(turn.observation),
        }
        context += len(decision.token_ids)


def _turn(meta: Mapping[str, Any], saved: Mapping[str, Any]) -> Turn:
    decision = Decision(
        action=meta["reply"],
        logprobs=saved["logprobs"].numpy(),
        mask=saved["action_token_mask"].numpy(),
        token_ids=saved["generated_ids"].numpy(),
        prompt_ids=saved["prompt_ids"].numpy(),
        fresh=meta["fresh"],
        value=meta["value"],
        mask_method=meta["masking_method"],
    )
    observation = _observation(meta["observation"]["text"], saved)
    return Turn(observation, decision, meta["reward"], meta["terminated"], meta["truncated"], meta["info"])
