"""YAML from files that others may have written: safe types only, within bounds that are checked before it is built."""

from __future__ import annotations

from typing import Any

import yaml

MAX_BYTES = 4 << 20
MAX_DEPTH = 64
MAX_VALUES = 100_000
"""Values once every alias is written out: nine aliases of nine aliases, nine deep, would be 10^9 of them."""
MAX_NUMBER = 4000
"""Characters of a number; a longer one takes quadratic time to read."""
# libyaml, where PyYAML has it, is ten times as fast
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str) -> Any:
    """What a YAML document holds, as yaml.safe_load. Raises ValueError for what is no YAML, or out of bounds."""
    try:
        check_bounds(text)
        return yaml.load(text, LOADER)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def check_bounds(text: str) -> None:
    """Raise ValueError for a document nested too deeply, with too many values, or with a list that holds itself.

    It counts events and builds nothing: libyaml's loader recurses in C, where deep nesting ends the process.
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES >> 20} MiB of YAML")
    sizes: dict[str | None, int] = {}
    stack: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, LOADER):
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in stack):
                raise ValueError(f"*{event.anchor} stands inside of what it names")
            total += sizes.get(event.anchor, 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            total += 1
            stack.append((event.anchor, total))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = stack.pop()
            sizes[anchor] = 1 + total - before
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            sizes[event.anchor] = 1
            # of texts in quotes alone, `implicit` is (False, True)
            number = event.implicit != (False, True) and event.value[:1] in tuple("+-._0123456789")
            if number and len(event.value) > MAX_NUMBER:
                raise ValueError(f"a number of {len(event.value)} characters")
        if len(stack) > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} deep")
        if total > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values")
