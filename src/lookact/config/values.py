"""One written value to one typed setting: what a config file or the command line says, as what a field holds."""

from __future__ import annotations

import difflib
import math
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from lookact.errors import ConfigError

TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")
NONE = ("none", "null", "~")
MOST_NAMED = 12
"""Settings that an error names one by one; of more, it names the groups."""


def convert(value: Any, kind: Any, name: str) -> Any:
    """`value` as `kind`; a ConfigError names the setting, the value, and what would do."""
    if allows_none(kind) and is_none(value):
        return None
    for option in options(kind):
        try:
            return _convert_one(value, option)
        except ValueError:
            continue
    raise ConfigError(f"{name} = {shown(value)}: expected {describe(kind)}{_hint(value, kind)}")


def options(kind: Any) -> tuple[Any, ...]:
    """The types a union allows besides None; a plain type is its own only option."""
    members = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return tuple(member for member in members if member is not type(None))


def allows_none(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType) and type(None) in get_args(kind)


def is_none(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.lower() in NONE)


def group_of(kind: Any) -> type | None:
    """The nested config class a field holds, if it holds one."""
    return next((option for option in options(kind) if isinstance(option, type) and is_dataclass(option)), None)


def describe(kind: Any) -> str:
    """A type in the words of an error message or a help text."""
    words = [_describe_one(option) for option in options(kind)]
    return " or ".join([*words, "none"] if allows_none(kind) else words)


def shown(value: Any) -> str:
    """A value on one line, cut where it gets long."""
    text = repr(str(value) if isinstance(value, Path) else value)
    return text if len(text) <= 80 else text[:77] + "..."


def closest(word: str, words: Iterable[str]) -> str | None:
    """The known word that a mistyped one likely means: by its last part, else a near spelling, else its beginning."""
    known = list(words)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    begun = [name for name in known if len(word) > 1 and name.startswith(word)]
    return next(iter([*_same_end(word, known), *near, *begun]), None)


def unknown(
    kind: str, word: str, known: Iterable[str], *, of: str = "", otherwise: str = "choose one of"
) -> ConfigError:
    """The error for a word that is none of the known ones, with the one that was probably meant, or all of them."""
    names = list(known)
    near = closest(word, names)
    remedy = f"did you mean {near}?" if near else f"{otherwise} {', '.join(names)}"
    return ConfigError(f"unknown {kind} {shown(word)[1:-1]}{of and f' of {of}'}: {remedy}")


def unknown_setting(name: str, names: Sequence[str]) -> ConfigError:
    """The error for a setting that does not exist, with those that were probably meant."""
    # the same word in several groups: what learns is meant more often than what comes before it
    meant = sorted(_same_end(name, names), key=lambda known: not known.startswith("learn."))
    near = meant[0] if meant else closest(name, names)
    others = f" Or {', '.join(meant[1:4])}?" if len(meant) > 1 else ""
    groups = dict.fromkeys(known.partition(".")[0] + (".*" if "." in known else "") for known in names)
    listed = ", ".join(names if len(names) <= MOST_NAMED else groups)
    remedy = f"did you mean {near}?{others}" if near else f"the settings are {listed}"
    return ConfigError(f"unknown setting {name if name.isprintable() else shown(name)}: {remedy}")


def _same_end(word: str, names: Iterable[str]) -> list[str]:
    """The dotted names that end in the same part as the word."""
    last = word.rsplit(".", 1)[-1]
    return [name for name in names if last and name.rsplit(".", 1)[-1] == last]


def _convert_one(value: Any, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return _choice(value, get_args(kind))
    if get_origin(kind) is tuple:
        return _tuple(value, get_args(kind))
    return _CONVERTERS[kind](value)


def _describe_one(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(kind))
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        if parts[-1] is Ellipsis:
            return f"a list with commas, each {describe(parts[0])}"
        return f"{len(parts)} values with commas: " + ", ".join(describe(part) for part in parts)
    return _WORDS.get(kind, "a group of settings")


def _hint(value: Any, kind: Any) -> str:
    choices = [str(choice) for option in options(kind) if get_origin(option) is Literal for choice in get_args(option)]
    near = closest(str(value), choices)
    if near:
        return f"; did you mean {near}?"
    # YAML reads a bare 12 as a number and a bare no as false
    return "; put it in quotes" if str in options(kind) and isinstance(value, bool | int | float) else ""


def _choice(value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        if (type(value) is type(choice) and value == choice) or value == str(choice):
            return choice
    raise ValueError


def _tuple(value: Any, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.strip("[]() ").split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError
    kinds = parts[:1] * len(value) if parts[-1] is Ellipsis else parts
    if len(kinds) != len(value):
        raise ValueError
    try:
        return tuple(convert(item, kind, "") for item, kind in zip(value, kinds))
    except ConfigError as error:
        raise ValueError from error


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word not in TRUE + FALSE:
        raise ValueError
    return word in TRUE


def _int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
        return int(value)
    number = _float(value)
    if not number.is_integer():
        raise ValueError
    return int(number)


def _float(value: Any) -> float:
    # YAML reads 1e-4 as text, so text that spells a number is one
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    try:
        number = float(value)
    except OverflowError as error:
        raise ValueError from error
    if math.isnan(number):
        raise ValueError
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _path(value: Any) -> Path:
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ValueError
    return Path(value).expanduser()


_CONVERTERS: dict[Any, Callable[[Any], Any]] = {bool: _bool, int: _int, float: _float, str: _text, Path: _path}
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
}
