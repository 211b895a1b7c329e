"""Tokenizer comparison of an engine and a learner: vocabulary, merges, special tokens, chat template, pixels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from lookact.errors import TokenMismatch

_IMAGE_SETTINGS = ("size", "min_pixels", "max_pixels", "patch_size", "merge_size", "temporal_patch_size",
                   "image_mean", "image_std")  # fmt: skip


def compare(a: Any, b: Any) -> list[str]:
    """One line for each difference between two tokenizers, or two processors; empty if they are the same."""
    (a, processor_a), (b, processor_b) = _parts(a), _parts(b)
    first, second = _backend(a), _backend(b)
    report = []
    if a.get_vocab() != b.get_vocab():
        report.append(_vocabulary_difference(a, b))
    if bool(first) != bool(second) or _merges(first) != _merges(second):
        report.append(_merge_difference(_merges(first), _merges(second)))
    if any(first.get(part) != second.get(part) for part in ("normalizer", "pre_tokenizer")):
        report.append("splitting: the normaliser or pre-tokeniser differs")
    report += _differences("special tokens", _special_tokens(a), _special_tokens(b))
    templates = _chat_template(a, processor_a), _chat_template(b, processor_b)
    if templates[0] != templates[1]:
        report.append(_template_difference(*templates))
    if processor_a is not None and processor_b is not None:
        report += _differences("image", _image_settings(processor_a), _image_settings(processor_b))
    return report


def assert_same_tokenizer(a: Any, b: Any, *, strict: bool = True) -> list[str]:
    """The report of `compare`; if strict, a report that is not empty is raised as TokenMismatch."""
    report = compare(a, b)
    if strict and report:
        raise TokenMismatch(
            f"engine and learner tokenise differently: {'; '.join(report)}: load both from one checkpoint"
        )
    return report


def _parts(side: Any) -> tuple[Any, Any]:
    """Tokenizer and processor of either."""
    tokenizer = getattr(side, "tokenizer", None)
    return (side, None) if tokenizer is None else (tokenizer, side)


def _backend(tokenizer: Any) -> dict[str, Any]:
    """The fast tokenizer's own description; empty for a slow one."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return json.loads(backend.to_str()) if backend is not None else {}


def _merges(backend: dict[str, Any]) -> list[str]:
    """Older files write a merge as one string, newer ones as a pair."""
    merges = backend.get("model", {}).get("merges", [])
    return [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]


def _special_tokens(tokenizer: Any) -> dict[str, Any]:
    """Roles and ids. The padding role is left out: padding is masked on both sides, and engines choose their own."""
    roles = {role: getattr(tokenizer, role, None) for role in ("bos_token", "eos_token", "unk_token")}
    added = {str(id): token.content for id, token in tokenizer.added_tokens_decoder.items() if token.special}
    return {**roles, **added}


def _chat_template(tokenizer: Any, processor: Any) -> str:
    template = getattr(processor, "chat_template", None) or getattr(tokenizer, "chat_template", None) or ""
    return template if isinstance(template, str) else json.dumps(template, sort_keys=True)


def _image_settings(processor: Any) -> dict[str, Any]:
    image_processor = getattr(processor, "image_processor", None)
    settings = {name: getattr(image_processor, name, None) for name in _IMAGE_SETTINGS}
    return {name: _plain(value) for name, value in settings.items() if value is not None}


def _plain(value: Any) -> Any:
    """Sizes come as mappings or as objects, depending on the release; JSON holds neither tuples nor objects."""
    if isinstance(value, int | float | str):
        return value
    if isinstance(value, list | tuple):
        return list(value)
    return {key: item for key, item in dict(value).items() if item is not None}


def _vocabulary_difference(a: Any, b: Any) -> str:
    first = {id: token for token, id in a.get_vocab().items()}
    second = {id: token for token, id in b.get_vocab().items()}
    differing = sorted(id for id in first.keys() | second.keys() if first.get(id) != second.get(id))
    shown = ", ".join(f"id {id} is {first.get(id)!r} against {second.get(id)!r}" for id in differing[:3])
    return f"vocabulary: {len(differing)} ids differ: {shown}"


def _merge_difference(first: list[str], second: list[str]) -> str:
    for index, (one, other) in enumerate(zip(first, second)):
        if one != other:
            return f"merges: number {index} is {one!r} against {other!r}"
    return f"merges: {len(first)} against {len(second)}"


def _template_difference(a: str, b: str) -> str:
    at = next((i for i, (one, other) in enumerate(zip(a, b)) if one != other), min(len(a), len(b)))
    return f"chat template: from character {at}, {a[at : at + 30]!r} against {b[at : at + 30]!r}"


def _differences(name: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(a.keys() | b.keys()):
        if a.get(key) != b.get(key):
            yield f"{name}: {key} is {a.get(key)!r} against {b.get(key)!r}"
