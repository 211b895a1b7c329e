"""tools/trace_step.py [RECIPE ...]: the files that one learning step of a recipe visits, in order of first visit.

Runs each recipe's debug preset and profiles one step of its last loop, the last but one: evaluation and checkpoint come
after the last. Files under envs/ (the worlds) are counted apart, and so are those of the model, its text and its
sampler. `--markdown` prints the table of docs/architecture.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import lookact
from lookact.cli import main
from lookact.training.run import Run

PACKAGE = Path(lookact.__file__).parent
MODEL = ("models/", "rollout/samplers/", "text/")
"""Folders of networks, and of what turns observations into tokens and back."""
WORDS: dict[str, list[str]] = {
    "nav-rloo": ["--evaluation.every", "99"],
    "vqa-ppo": ["--evaluation.every", "99", "--critic.warmup", "0"],
    "vla-ppo": ["--evaluation.every", "99", "--learn.critic_warmup", "0"],
    "pref-sac": ["--judge.kind", "oracle", "--evaluation.every", "99"],
    "world-duel": [],
}
"""Settings that leave evaluation out of the step, and a critic's warm-up, in which no policy learns."""


@dataclass
class Trace:
    """What was visited, in order: package files and functions, and how often the file changed on a first visit."""

    files: dict[str, None] = field(default_factory=dict)
    functions: dict[tuple[str, str], None] = field(default_factory=dict)
    switches: int = 0
    last: str = ""

    def visit(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(str(PACKAGE)):
            return
        name = str(Path(file).relative_to(PACKAGE))
        key = (name, frame.f_code.co_qualname)
        if key in self.functions:
            return
        self.functions[key] = None
        self.files[name] = None
        self.switches += name != self.last
        self.last = name


def traced_steps(original: Callable[..., Any], trace: Trace, number: int) -> Callable[..., Iterator[int]]:
    """`Run.steps` that profiles its step `number`; 0 is the last but one."""

    def steps(self: Run, total: int, *arguments: Any, **named: Any) -> Iterator[int]:
        for step in original(self, total, *arguments, **named):
            if step == (number or max(1, total - 1)):
                # phases before RL have steps too: the last loop's are those that stay
                trace.files.clear()
                trace.functions.clear()
                trace.switches = 0
                # the loop itself was called before the step began
                trace.visit(loop_of(sys._getframe()), "call", None)
                sys.setprofile(trace.visit)
            yield step
            sys.setprofile(None)

    return steps


def loop_of(frame: FrameType) -> FrameType:
    """The frame of the recipe that runs the loop."""
    above = frame.f_back
    while above is not None and "recipes" not in Path(above.f_code.co_filename).parts:
        above = above.f_back
    return above or frame


def trace_recipe(recipe: str, number: int) -> Trace:
    """One learning step of the recipe's debug preset."""
    trace, original = Trace(), Run.steps
    Run.steps = traced_steps(original, trace, number)  # type: ignore[method-assign, assignment]
    try:
        with tempfile.TemporaryDirectory() as folder:
            code = main(["train", recipe, "--preset", "debug", "--out", folder, *WORDS[recipe]])
    finally:
        Run.steps = original  # type: ignore[method-assign]
        sys.setprofile(None)
    if code:
        raise SystemExit(f"{recipe} ended with exit code {code}")
    return trace


def counts(trace: Trace) -> tuple[int, int, int, int]:
    """Files in all; files outside the worlds, how many of them are the model and its sampler, functions outside."""
    outside = [file for file in trace.files if not file.startswith("envs/")]
    functions = [name for file, name in trace.functions if not file.startswith("envs/")]
    return len(trace.files), len(outside), sum(file.startswith(MODEL) for file in outside), len(functions)


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=list(WORDS), metavar="RECIPE")
    parser.add_argument("--step", type=int, default=0, help="which step of the loop (default: the last but one)")
    parser.add_argument("--functions", action="store_true", help="name the functions behind each file")
    parser.add_argument("--markdown", action="store_true", help="print a table")
    arguments = parser.parse_args()
    traces = {recipe: trace_recipe(recipe, arguments.step) for recipe in arguments.recipes or WORDS}
    if arguments.markdown:
        print(
            "| one learning step | files | outside `envs/` | of these model and sampler | functions outside `envs/` |"
        )
        print("|---|---|---|---|---|")
    for recipe, trace in traces.items():
        files, outside, model, functions = counts(trace)
        if arguments.markdown:
            print(f"| {recipe} | {files} | {outside} | {model} | {functions} |")
        else:
            print(
                f"\n{recipe}: {files} files, {outside} outside envs/ ({model} of model and sampler), "
                f"{functions} functions there, {trace.switches} changes"
            )
            for file in trace.files:
                if not file.startswith("envs/"):
                    names = [name for where, name in trace.functions if where == file]
                    print(f"  {file}" + (f": {', '.join(names)}" if arguments.functions else ""))


if __name__ == "__main__":
    run()
