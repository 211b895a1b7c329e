"""Draw learning curves of one or several runs: one panel a metric, one colour a run."""

from __future__ import annotations

from pathlib import Path

from lookact.cli.output import save_picture
from lookact.cli.parser import Arguments, Parser
from lookact.errors import ConfigError
from lookact.train.config_values import closest, shown

EXAMPLES = (
    "lookact plot runs/nav-rloo/small-seed0",
    "lookact plot runs/nav-rloo/small-seed0 runs/nav-rloo/small-seed1 --metric eval/success_rate --out curve.png",
)


def add_options(parser: Parser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="a run folder")
    parser.add_argument(
        "--metric", metavar="NAME", action="append", help="what to draw, again for more (default: eval/*)"
    )
    parser.add_argument("--out", metavar="FILE", type=Path, default=Path("curve.png"), help="(default: curve.png)")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    from lookact.plots.learning_curve import draw_curves, read_curves

    runs = {str(folder): read_curves(folder) for folder in arguments.runs}
    logged = sorted({name for curves in runs.values() for name in curves})
    save_picture(draw_curves(runs, chosen(arguments.metric, logged)), arguments.out)


def chosen(asked: list[str] | None, logged: list[str]) -> list[str]:
    """The metrics to draw: those asked for, else all of evaluation, else all."""
    if not logged:
        raise ConfigError("nothing to draw: the runs have logged no numbers yet")
    for name in asked or []:
        if name not in logged:
            near = closest(name, logged)
            remedy = f"did you mean {near}?" if near else f"the runs have {', '.join(logged)}"
            raise ConfigError(f"unknown metric {shown(name)[1:-1]}: {remedy}")
    return asked or [name for name in logged if name.startswith("eval/")] or logged
