"""Reads `--optim.lr 1e-4 --shuffle --sizes 8 16` into setting names and written values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_origin

from lookact.config.values import closest, describe, options, shown
from lookact.errors import ConfigError

MOST_NAMED = 12
"""Settings that an error names one by one."""


def read_args(args: Sequence[str], kinds: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Dotted name and written value of each override, in order; `kinds` are the types of all known settings."""
    position = 0
    while position < len(args):
        word, equals, value = args[position].partition("=")
        if not word.startswith("--") or len(word) == 2:
            raise ConfigError(f"unexpected {shown(args[position])}: settings are written --name value")
        name, negated = _find(word[2:], kinds)
        follow = [] if equals or negated else _values_after(args, position + 1, kinds.get(name))
        position += 1 + len(follow)
        if negated and equals:
            raise ConfigError(f"{shown(args[position - 1])}: write {word} alone, or --{name}={value}")
        if equals or negated:
            yield name, value if equals else False
        else:
            yield name, _joined(name, follow, kinds.get(name))


def unknown(name: str, names: Sequence[str]) -> ConfigError:
    """The error for a setting that does not exist, with those that were probably meant."""
    last = name.rsplit(".", 1)[-1]
    # the same word in several groups: what learns is meant more often than what comes before it
    meant = sorted(
        (known for known in names if last and known.rsplit(".", 1)[-1] == last),
        key=lambda known: not known.startswith("learn."),
    )
    near = meant[0] if meant else closest(name, names)
    others = f" Or {', '.join(meant[1:4])}?" if len(meant) > 1 else ""
    remedy = f"did you mean {near}?{others}" if near else f"the settings are {_in_short(names)}"
    return ConfigError(f"unknown setting {name if name.isprintable() else shown(name)}: {remedy}")


def _in_short(names: Sequence[str]) -> str:
    """All names, or where they are many, their groups."""
    groups = dict.fromkeys(name.partition(".")[0] + (".*" if "." in name else "") for name in names)
    return ", ".join(names if len(names) <= MOST_NAMED else groups)


def _find(word: str, kinds: Mapping[str, Any]) -> tuple[str, bool]:
    """The setting a word names, and whether it was negated."""
    name = word.replace("-", "_")
    if name in kinds or any(known.startswith(name + ".") for known in kinds):
        return name, False
    positive = name.removeprefix("no_")
    if positive != name and _takes(kinds.get(positive), bool):
        return positive, True
    raise unknown(name, list(kinds))


def _values_after(args: Sequence[str], start: int, kind: Any) -> list[str]:
    """The words after an option that belong to it: all of them for a tuple, else one."""
    most = len(args) if any(get_origin(option) is tuple for option in options(kind)) else start + 1
    stop = start
    while stop < min(most, len(args)) and not args[stop].startswith("--"):
        stop += 1
    return list(args[start:stop])


def _joined(name: str, words: list[str], kind: Any) -> Any:
    if len(words) > 1:
        return words
    if words:
        return words[0]
    if _takes(kind, bool):
        return True
    raise ConfigError(f"--{name} has no value: give it {describe(kind) if kind else 'a setting of the group'}")


def _takes(kind: Any, wanted: type) -> bool:
    return kind is not None and wanted in options(kind)
