"""The command skeleton: argparse parsers that answer a mistake with one line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import NoReturn

from lookact.config.values import closest, shown
from lookact.errors import ConfigError

Arguments = argparse.Namespace
Parser = argparse.ArgumentParser


def new_parser(prog: str, description: str, *, examples: Sequence[str] = (), help_option: bool = True) -> Parser:
    """A parser that raises ConfigError on bad usage and shows examples under its help."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog="examples:\n" + "\n".join(f"  {example}" for example in examples) if examples else None,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=30, width=110),
        allow_abbrev=False,
        add_help=help_option,
    )

    def refuse(message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {prog} --help")

    parser.error = refuse  # type: ignore[method-assign]
    return parser


def refuse_unknown(parser: Parser, words: Sequence[str]) -> None:
    """Raise for the first word no option took, naming the option that was probably meant."""
    if not words:
        return
    near = closest(words[0].partition("=")[0], option_names(parser))
    remedy = f"did you mean {near}?" if near else f"see {parser.prog} --help"
    raise ConfigError(f"unknown option {shown(words[0])[1:-1]}: {remedy}")


def option_names(parser: Parser) -> list[str]:
    return sorted(set(re.findall(r"(?<![\w-])--[\w-]+", parser.format_help())))


def at_least_one(text: str) -> int:
    """An argparse type: a whole number from 1 on."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number
