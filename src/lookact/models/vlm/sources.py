"""Sources of pretrained models, a folder or a name on the Hub: checked without loading them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lookact.errors import ConfigError, DataError
from lookact.models.vlm.general import GENERAL, find_general

TINY = "tiny"
"""The source of a model that is made on the spot."""
ADAPTER_FILE = "adapter_config.json"
HUB_NAME = re.compile(r"\w[\w.-]*/[\w.-]+")
"""Owner and name; a path that begins with a dot is none."""
CHAT_EXAMPLE = "Qwen/Qwen3-VL-8B-Instruct"
CHAT = "vision-language"
"""The family of all that a chat policy can be."""
CHAT_TYPES = ("qwen3_vl", "qwen3_vl_moe", "qwen2_5_vl", "smolvlm", "idefics3", "internvl", "gemma3")
"""Model types of the families in docs/models.md."""


def check_source(source: str, family: str, *, example: str = CHAT_EXAMPLE, bare: bool = False) -> None:
    """Refuse what can't be loaded as a model of this family: a folder that is not there, or one of another kind.

    What the Hub alone knows is left to the Hub; `bare` takes names without an owner, as BERT's are.
    """
    if source == TINY:
        return
    if source == GENERAL:
        source = str(find_general())
    folder = Path(source)
    if folder.exists():
        if (folder / ADAPTER_FILE).exists():
            return check_source(adapter_base(folder), family, example=example, bare=bare)
        if not (folder / "config.json").exists():
            raise DataError(f"{source} is not a checkpoint: it has no config.json")
        return _check_family(source, _read(folder / "config.json"), family)
    if not (HUB_NAME.fullmatch(source) or (bare and re.fullmatch(r"\w[\w.-]*", source))):
        raise DataError(f"no checkpoint at {source}: give a folder that exists, or a Hub name like {example}")
    config = _cached(source)
    if config is not None:
        _check_family(source, _read(config), family)
    elif os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise DataError(f"{source} is not on this machine and HF_HUB_OFFLINE is set: fetch it first, or give a folder")


def adapter_base(folder: Path) -> str:
    """The checkpoint that an adapter folder is made for: a folder or a Hub name, and no adapter folder itself."""
    base = _read(folder / ADAPTER_FILE).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise DataError(f"{folder / ADAPTER_FILE} names no base model: write base_model_name_or_path into it")
    if base.startswith(os.pardir):
        # by the path as given, since a checkpoint may be a link to another disk
        base = os.path.normpath(folder.absolute() / base)
        if not Path(base).exists():
            raise DataError(f"{folder} is made for {base}, which is not there: move the whole run, not a part of it")
    if Path(base, ADAPTER_FILE).exists():
        raise DataError(f"{folder} is made for {base}, which is an adapter folder too: name a whole checkpoint there")
    return base


def place_base(folder: Path) -> None:
    """Name an adapter folder's base by its place in the run, so that a run can be moved; one elsewhere by its path."""
    path = folder / ADAPTER_FILE
    if not path.exists():
        return
    settings = dict(_read(path))
    base, here = Path(settings.get("base_model_name_or_path") or ""), folder.resolve()
    if (base / "config.json").exists():
        inside = base.resolve().is_relative_to(here.parent)
        settings["base_model_name_or_path"] = os.path.relpath(base.resolve(), here) if inside else str(base.resolve())
        path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def weight_bytes(source: str) -> int:
    """What the weights of a folder, or of a Hub name that was fetched before, take on disk; 0 where nobody knows."""
    if source in (TINY, GENERAL):
        return 0
    config = Path(source, "config.json") if Path(source).exists() else _cached(source)
    return 0 if config is None else sum(path.stat().st_size for path in config.parent.glob("*.safetensors"))


def model_type(source: str) -> str | None:
    """The model type of a checkpoint that is on this machine; None where nobody knows."""
    folder = Path(adapter_base(Path(source))) if Path(source, ADAPTER_FILE).exists() else Path(source)
    config = folder / "config.json" if folder.exists() else _cached(source)
    return None if config is None or not config.exists() else str(_read(config).get("model_type"))


def _image_text_types() -> Mapping[str, Any]:
    """All that `AutoModelForImageTextToText` loads; asked late, since it takes torch to know."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    types: Mapping[str, Any] = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    return types


def _cached(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "config.json")
    return Path(found) if isinstance(found, str) else None


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is no JSON: the checkpoint is torn; fetch or write it again") from error
    return content if isinstance(content, dict) else {}


def _check_family(source: str, config: Mapping[str, Any], family: str) -> None:
    kind = str(config.get("model_type", "nameless"))
    if family == CHAT and (kind in CHAT_TYPES or kind in _image_text_types()):
        return
    if not kind.startswith(family):
        raise ConfigError(f"{source} is a {kind} model: choose a {family} checkpoint")
