"""Frozen dataclass configs to and from mappings, YAML, JSON and the command line.

A preset is the start; a file lies over it, typed overrides over both, and `check` has the last word:
`check(override(load_config(Config, path, base=PRESETS["small"]), ["--optim.lr", "1e-4"]))`.
Every mistake is a ConfigError of one line that names the setting in full, the value, and the remedy.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast, get_origin, get_type_hints

import yaml

from lookact.config.aliases import renew_mapping
from lookact.config.safe_yaml import load_yaml
from lookact.config.values import allows_none, convert, describe, group_of, is_none, options, shown, unknown_setting
from lookact.errors import ConfigError

C = TypeVar("C")
BOUNDS = {
    "least": (operator.ge, "set it to at least"),
    "above": (operator.gt, "set it above"),
    "most": (operator.le, "set it to at most"),
    "below": (operator.lt, "set it below"),
}
"""How a setting may be bounded: what must hold, and what to say where it does not."""


@dataclass(frozen=True)
class Setting:
    """One leaf of a config, by its full dotted name."""

    name: str
    kind: Any
    value: Any
    metadata: Mapping[str, Any]

    @property
    def help(self) -> str:
        return str(self.metadata.get("help", ""))

    @property
    def type(self) -> str:
        return describe(self.kind)


def setting(
    default: Any = dataclasses.MISSING,
    *,
    help: str = "",
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    exists: bool = False,
) -> Any:
    """A dataclass field with a help text and bounds that `check` holds it to; on a tuple they bind every item."""
    rules = {"help": help, "least": least, "above": above, "most": most, "below": below, "exists": exists}
    return dataclasses.field(default=default, metadata={key: rule for key, rule in rules.items() if rule is not None})


def settings(config: Any, prefix: str = "") -> Iterator[Setting]:
    """Every leaf of a config or config class, depth first; a class shows its defaults."""
    hints = get_type_hints(config if isinstance(config, type) else type(config))
    for field in dataclasses.fields(config):
        kind = hints[field.name]
        value = _default(field) if isinstance(config, type) else getattr(config, field.name)
        group = group_of(kind) if isinstance(config, type) else None
        if group is not None or dataclasses.is_dataclass(value):
            yield from settings(group or value, f"{prefix}{field.name}.")
        else:
            yield Setting(prefix + field.name, kind, value, field.metadata)


@functools.cache
def with_group(cls: type[C], name: str, group: type) -> type[C]:
    """The config class with another class of settings as its group `name`, such as the environment of another task."""
    hints = get_type_hints(cls)
    fields = [
        (field.name, group, dataclasses.field(default=group()))
        if field.name == name
        else (field.name, hints[field.name], dataclasses.field(default=field.default, metadata=field.metadata))
        for field in dataclasses.fields(cls)  # type: ignore[arg-type]
    ]
    return dataclasses.make_dataclass(cls.__name__, fields, frozen=True)


def from_mapping(cls: type[C], mapping: Mapping[str, Any], *, base: C | None = None) -> C:
    """A config from plain nested values; what the mapping does not name comes from `base`, else the defaults."""
    names = [leaf.name for leaf in settings(cls)]
    return cast(C, _build(cls, mapping, base, "", names))


def to_mapping(config: Any) -> dict[str, Any]:
    """A config as nested plain values that YAML and JSON can hold."""
    return {field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config)}


def override(config: C, args: Sequence[str]) -> C:
    """The config with `--optim.lr 1e-4`, `--optim.lr=1e-4`, `--flag` and `--no-flag` laid over it."""
    written: dict[str, Any] = {}
    kinds = {leaf.name: leaf.kind for leaf in settings(type(config))}
    for name, value in _read_args(args, kinds):
        level = written
        *groups, leaf = name.split(".")
        for group in groups:
            if not isinstance(level.get(group), dict):
                level[group] = {}
            level = level[group]
        level[leaf] = value
    return from_mapping(type(config), written, base=config)


def load_config(cls: type[C], path: Path | str, base: C | None = None, *, recipe: str = "") -> C:
    """A config from a YAML or JSON file, over `base` where the file is silent; a `recipe`'s old names are known."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if _suffix(path) == ".json" else load_yaml(text)
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no valid {_suffix(path)[1:]}: {' '.join(str(error).split())}") from error
    if not isinstance(content, Mapping | None):
        raise ConfigError(f"{path} holds {shown(content)}: expected lines of `setting: value`")
    return from_mapping(cls, renew_mapping(recipe, content or {}), base=base)


def save_config(config: Any, path: Path | str) -> None:
    """Write a config as YAML with its help texts as comments, or as JSON, by the path's suffix."""
    path = Path(path)
    text = json.dumps(to_mapping(config), indent=2) + "\n" if _suffix(path) == ".json" else to_yaml(config)
    path.write_text(text, encoding="utf-8")


def to_yaml(config: Any, indent: str = "") -> str:
    """A config as YAML that explains itself."""
    lines = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            lines.append(f"{indent}{field.name}:\n{to_yaml(value, indent + '  ')}")
            continue
        flow = None if isinstance(value, tuple) else False
        text = yaml.safe_dump({field.name: _plain(value)}, default_flow_style=flow, width=10**6, allow_unicode=True)
        block = "\n".join(indent + line if line else line for line in text.rstrip("\n").split("\n"))
        help = " ".join(field.metadata.get("help", "").split())
        # a comment after a value that spans lines would become part of the value
        lines.append(f"{block}  # {help}\n" if help and "\n" not in block else block + "\n")
    return "".join(lines)


def check(config: C) -> C:
    """The same config, or a ConfigError for the first setting outside its declared bounds."""
    for leaf in settings(config):
        for value in leaf.value if isinstance(leaf.value, tuple) else (leaf.value,):
            problem = None if value is None else _problem(value, leaf.metadata)
            if problem:
                raise ConfigError(f"{leaf.name} = {shown(leaf.value)}: {problem}")
    return config


def _problem(value: Any, rules: Mapping[str, Any]) -> str | None:
    for rule, (holds, remedy) in BOUNDS.items():
        if rule in rules and not holds(value, rules[rule]):
            return f"{remedy} {rules[rule]}"
    if rules.get("exists") and not Path(value).exists():
        return "no such file or folder; check the path"
    return None


def _build(cls: Any, mapping: Mapping[str, Any], base: Any, prefix: str, names: list[str]) -> Any:
    hints = get_type_hints(cls)
    known = {field.name: field for field in dataclasses.fields(cls)}
    for key in mapping:
        if key not in known:
            raise unknown_setting(f"{prefix}{key}", names)
    values = {}
    for name, field in known.items():
        start = _default(field) if base is None else getattr(base, name)
        if name in mapping:
            values[name] = _field_value(mapping[name], hints[name], start, prefix + name, names)
        elif start is dataclasses.MISSING:
            raise ConfigError(f"{prefix}{name} is missing: give it {describe(hints[name])}")
        else:
            values[name] = start
    return cls(**values)


def _field_value(value: Any, kind: Any, start: Any, name: str, names: list[str]) -> Any:
    group = group_of(kind)
    if group is None:
        return convert(value, kind, name)
    if isinstance(value, Mapping):
        return _build(group, value, start if isinstance(start, group) else None, f"{name}.", names)
    if allows_none(kind) and is_none(value):
        return None
    inside = ", ".join(leaf.name for leaf in settings(group, f"{name}."))
    raise ConfigError(f"{name} = {shown(value)}: it is a group; set one of {inside}")


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_mapping(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _suffix(path: Path) -> str:
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        raise ConfigError(f"{path} has the suffix {path.suffix!r}: name a config file .yaml or .json")
    return path.suffix.lower()


def _read_args(args: Sequence[str], kinds: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
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


def _find(word: str, kinds: Mapping[str, Any]) -> tuple[str, bool]:
    """The setting a word names, and whether it was negated."""
    name = word.replace("-", "_")
    if name in kinds or any(known.startswith(name + ".") for known in kinds):
        return name, False
    positive = name.removeprefix("no_")
    if positive != name and _takes(kinds.get(positive), bool):
        return positive, True
    raise unknown_setting(name, list(kinds))


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
