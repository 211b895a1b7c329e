"""Episodes on disk: a manifest to read with any tool, and tensors that load without pickle.

The one format of episodes, of token policies (their actions are words) and of control policies (vectors): train, eval,
demo and collect write it, the viewer reads it. `episode_manifest.jsonl` holds one line an episode;
`{episode_id}_tensors.pt` its arrays. The manifest line is written last, so an interrupted collection never lists an
episode whose tensors are not there.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch
from torch import Tensor

from lookact.data.jsonl import MANIFEST, append_row, drop_torn_line, read_rows
from lookact.data.quality import Quality, QualitySummary, count_qualities, judge_quality
from lookact.errors import DataError, ParseError
from lookact.text.actions import CONFIDENCE, parse_json_object, reasoning_of
from lookact.text.file_names import file_name
from lookact.types import Decision, Episode, FloorMap, Image, Observation, Turn


class EpisodeStore:
    """A folder of episodes that can be appended to, interrupted and read back equal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        drop_torn_line(folder / MANIFEST)

    def ids(self) -> set[str]:
        """Episodes already complete on disk."""
        return {row["episode_id"] for row in self.rows()}

    def rows(self) -> Iterator[dict[str, Any]]:
        path = self.folder / MANIFEST
        return read_rows(path, remedy="remove the line and collect again") if path.exists() else iter(())

    def add(self, episode: Episode) -> None:
        """Tensors first, then the manifest line."""
        path = self.folder / tensors_name(episode.id)
        temporary = path.with_suffix(".partial")
        torch.save(episode_tensors(episode), temporary)
        temporary.replace(path)
        append_row(self.folder / MANIFEST, episode_row(episode), durable=True)

    def load(self, row: Mapping[str, Any]) -> Episode:
        """The episode behind a manifest row, equal to the one that was added."""
        return load_episode(self.folder, row)

    def summary(self) -> QualitySummary:
        """What `summarise` says of all episodes, by the manifest alone."""
        return count_qualities(
            (
                Quality(row["masking_quality"], row["is_valid"], row["dropout_reason"]),
                [turn["masking_method"] for turn in row["turns"]],
            )
            for row in self.rows()
        )

    def episodes(self) -> Iterator[Episode]:
        return (self.load(row) for row in self.rows())


def tensors_name(id: str) -> str:
    """The name of the file that holds an episode's arrays."""
    return f"{file_name(id)}_tensors.pt"


def load_episode(folder: Path, row: Mapping[str, Any]) -> Episode:
    """The same read-only: opening a store would cut its torn last line."""
    path = folder / tensors_name(row["episode_id"])
    try:
        saved = torch.load(path, weights_only=True)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: the manifest lists it, so the folder was copied in part") from error
    except Exception as error:
        raise DataError(f"{path} can't be read ({error}): delete its manifest line and collect again") from error
    return episode_of(row, saved)


def episode_row(episode: Episode) -> dict[str, Any]:
    """All but the arrays, in JSON's own types."""
    quality = judge_quality(episode)
    first, last = ({}, {}) if not episode.turns else (episode.turns[0].info, episode.turns[-1].info)
    room = episode.floor_map
    return {
        "episode_id": episode.id,
        "scene_id": first.get("scene_id", ""),
        "question_id": first.get("question_id", ""),
        "question": first.get("question", episode.turns[0].observation.text if episode.turns else ""),
        "num_turns": len(episode.turns),
        "terminal_reward": episode.turns[-1].reward if episode.turns else 0.0,
        "success": plain(last.get("success")),
        "is_valid": quality.is_valid,
        "masking_quality": quality.quality,
        "dropout_reason": quality.dropout_reason,
        "group": episode.group,
        "seed": episode.seed,
        "policy_version": episode.policy_version,
        "error": episode.error,
        "last_text": None if episode.last is None else episode.last.text,
        "floor_map": None if room is None else {"middle": plain(room.middle), "scale": room.scale},
        "turns": [_turn_row(index, turn) for index, turn in enumerate(episode.turns)],
    }


def episode_tensors(episode: Episode) -> dict[str, Any]:
    """Its arrays."""
    room = episode.floor_map
    return {
        "turns": list(_turn_tensors(episode)),
        "last": _observed(episode.last),
        **({} if room is None else {"floor_map": _png(room.picture)}),
    }


def episode_of(row: Mapping[str, Any], saved: Mapping[str, Any]) -> Episode:
    """The episode that both were made of."""
    room = row.get("floor_map")
    return Episode(
        id=row["episode_id"],
        group=row["group"],
        seed=row["seed"],
        turns=tuple(_turn(meta, arrays) for meta, arrays in zip(row["turns"], saved["turns"])),
        last=_observation(row["last_text"], saved["last"]) if row["last_text"] is not None else None,
        policy_version=row["policy_version"],
        error=row["error"],
        floor_map=room and FloorMap(_image(saved["floor_map"]), (room["middle"][0], room["middle"][1]), room["scale"]),
    )


def plain(value: Any) -> Any:
    """JSON's own types only."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def _turn_row(index: int, turn: Turn) -> dict[str, Any]:
    decision = turn.decision
    state = turn.observation.state
    return {
        "turn_index": index,
        "observation": {
            "text": turn.observation.text,
            "cameras": list(turn.observation.images),
            "state": None if state is None else [float(x) for x in state],
        },
        **_action_row(decision.action),
        "num_action_tokens": int(decision.mask.sum()),
        "masking_method": decision.mask_method,
        "masking_confidence": CONFIDENCE.get(decision.mask_method, 0.0),
        "fresh": decision.fresh,
        "recalls": decision.recalls,
        "reward": turn.reward,
        "terminated": turn.terminated,
        "truncated": turn.truncated,
        "info": plain(turn.info),
    }


def _action_row(action: Any) -> dict[str, Any]:
    """What was done; `reply` is None for an action vector, whose numbers JSON keeps to the last bit."""
    if not isinstance(action, str):
        return {"action": [float(value) for value in action], "reasoning": "", "reply": None}
    try:
        parsed = parse_json_object(action)
    except ParseError:
        parsed = None
    return {"action": parsed, "reasoning": reasoning_of(action), "reply": action}


def _turn_tensors(episode: Episode) -> Iterator[dict[str, Any]]:
    """A turn's arrays; `input_token_length` counts the whole context that its first token was sampled on."""
    context = 0
    for turn in episode.turns:
        decision, tokens = turn.decision, {}
        if decision.token_ids is not None and decision.prompt_ids is not None:
            context = len(decision.prompt_ids) + (0 if decision.fresh else context)
            tokens = {
                "generated_ids": torch.from_numpy(decision.token_ids),
                "prompt_ids": torch.from_numpy(decision.prompt_ids),
                "input_token_length": context,
            }
            context += len(decision.token_ids)
        yield {
            **tokens,
            "action_token_mask": torch.from_numpy(decision.mask),
            "logprobs": torch.from_numpy(decision.logprobs),
            **_observed(turn.observation),
        }


def _turn(meta: Mapping[str, Any], saved: Mapping[str, Any]) -> Turn:
    ids = {
        name: saved[key].numpy()
        for name, key in (("token_ids", "generated_ids"), ("prompt_ids", "prompt_ids"))
        if key in saved
    }
    decision = Decision(
        action=np.array(meta["action"], dtype=np.float32) if meta["reply"] is None else meta["reply"],
        logprobs=saved["logprobs"].numpy(),
        mask=saved["action_token_mask"].numpy(),
        fresh=meta["fresh"],
        recalls=meta.get("recalls", 0),
        mask_method=meta["masking_method"],
        **ids,
    )
    observation = _observation(meta["observation"]["text"], saved)
    return Turn(observation, decision, meta["reward"], meta["terminated"], meta["truncated"], meta["info"])


def _observed(observation: Observation | None) -> dict[str, Any]:
    if observation is None:
        return {"images": {}}
    arrays = {"depth": observation.depth, "state": observation.state}
    return {
        "images": {name: _png(image) for name, image in observation.images.items()},
        **{key: torch.from_numpy(np.ascontiguousarray(array)) for key, array in arrays.items() if array is not None},
    }


def _observation(text: str, saved: Mapping[str, Any]) -> Observation:
    arrays = {key: saved[key].numpy() for key in ("depth", "state") if key in saved}
    return Observation(text=text, images={name: _image(image) for name, image in saved["images"].items()}, **arrays)


def _png(image: Image) -> Tensor:
    """The bytes of a PNG file, a fifth of a rendered image's raw size."""
    file = io.BytesIO()
    PIL.Image.fromarray(image).save(file, "PNG")
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def _image(saved: Tensor) -> Image:
    """The picture (h, w, 3); older stores hold it as it is."""
    if saved.dim() == 3:
        return saved.numpy()
    # a copy, since an array over an open file can't be written to
    return np.array(PIL.Image.open(io.BytesIO(saved.numpy().tobytes())))
