"""Draw figures for papers and reports: learning curves, how often a judge was right, what it saw and said.

A FILE is a run's folder, its metrics.jsonl or an eval.csv. Files given one name, NAME=FILE, are seeds of one curve.
Figures are PNG, JPEG or PDF, by the ending of --out (--output is the same).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from lookact.cli.output import say
from lookact.cli.parser import Arguments, Parser, positive_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lookact.plots.learning_curve import Curve

EXAMPLES = (
    "lookact plot curve runs/nav-rloo/small-seed0 --key rollout/success_rate --window 20",
    "lookact plot curve RLOO=runs/a RLOO=runs/b PPO=runs/c/eval.csv --mark random=0.12 --out curve.pdf",
    "lookact plot judge vlm_query_log.csv --out judge.pdf --title 'Qwen3-VL-8B, drawer-open'",
    "lookact plot pairs runs/pref-sac/small-seed0 --show wrong",
    "lookact plot tasks drawer-open-v3 sweep-into-v3 soccer-v3",
)
SUCCESS = "success_rate"


def add_options(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    curve = actions.add_parser("curve", help="one metric over training, seeds as a mean and a band", allow_abbrev=False)
    curve.add_argument("files", metavar="[NAME=]FILE", nargs="+", help="a run folder, a metrics.jsonl or an eval.csv")
    curve.add_argument("--key", metavar="K", help=f"what to draw (default: eval/{SUCCESS}, or {SUCCESS} of a CSV)")
    curve.add_argument("--mark", metavar="NAME=Y", type=mark, action="append", default=[], help="a horizontal line")
    curve.add_argument(
        "--window", metavar="N", type=positive_int, default=1, help="average each curve over its last N points"
    )
    curve.add_argument("--x-label", metavar="T", default="step", help="(default: step)")
    curve.add_argument("--y-label", metavar="T", help="(default: the metric's name)")
    judge = actions.add_parser(
        "judge", help="how often a judge was right, by how far scores differ", allow_abbrev=False
    )
    judge.add_argument("log", metavar="FILE", type=Path, help="a vlm_query_log.csv")
    judge.add_argument("--bins", metavar="N", type=positive_int, default=5, help="how many bars (default: 5)")
    judge.add_argument("--equal-width", action="store_true", help="bars of equal width, not of equally many pairs")
    pairs = actions.add_parser("pairs", help="pictures that a judge compared, and what it said", allow_abbrev=False)
    pairs.add_argument("run", metavar="RUN", type=Path, help="a pref-sac run's folder, or its judge/queries.jsonl")
    pairs.add_argument("--show", choices=("all", "right", "wrong", "undecided"), default="all", help="(default: all)")
    tasks = actions.add_parser("tasks", help="contact sheet: control tasks as a judge sees them", allow_abbrev=False)
    tasks.add_argument("tasks", metavar="TASK", nargs="*", help="(default: MetaWorld's tasks with views of their own)")
    for action, count, what in ((pairs, 8, "pairs, from the hardest to the easiest"), (tasks, 6, "pictures of a task")):
        action.add_argument("--count", metavar="N", type=positive_int, default=count, help=f"{what} (default: {count})")
    for name, action in {"curve": curve, "judge": judge, "pairs": pairs, "tasks": tasks}.items():
        picture = Path(f"{name}.png")
        action.add_argument(
            "--out", "--output", metavar="FILE", type=Path, default=picture, help=f"(default: {picture})"
        )
        action.add_argument("--title", metavar="T", default="", help="over the figure")
        action.error = parser.error  # type: ignore[method-assign]


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    from lookact.plots.style import save_figure

    figure = {"curve": curve, "judge": judge, "pairs": pairs, "tasks": tasks}[arguments.action](arguments)
    save_figure(figure, arguments.out)
    say(f"drew {arguments.out}")


def curve(arguments: Arguments) -> Figure:
    """Learning curves of one metric."""
    from lookact.plots.learning_curve import draw_learning_curve

    curves: dict[str, list[Curve]] = {}
    for word in arguments.files:
        name, path = labelled(word)
        curves.setdefault(name, []).append(read_curve(path, arguments.key))
    return draw_learning_curve(
        curves,
        title=arguments.title,
        x_label=arguments.x_label,
        y_label=arguments.y_label or (arguments.key or SUCCESS).rpartition("/")[2].replace("_", " "),
        marks=arguments.mark,
        window=arguments.window,
    )


def judge(arguments: Arguments) -> Figure:
    """A judge's verdicts against true scores."""
    from lookact.plots.judge_accuracy import draw_judge_accuracy, read_query_log

    log = read_query_log(arguments.log)
    return draw_judge_accuracy(log, title=arguments.title, bins=arguments.bins, equal_width=arguments.equal_width)


def pairs(arguments: Arguments) -> Figure:
    """Pairs of a judge's diary."""
    from lookact.algorithms.judge_diary import read_diary
    from lookact.plots.judge_pairs import choose_pairs, draw_pairs

    chosen = choose_pairs(read_diary(arguments.run), count=arguments.count, shown=arguments.show)
    return draw_pairs(chosen, title=arguments.title)


def tasks(arguments: Arguments) -> Figure:
    """Tasks as a judge sees them."""
    from lookact.envs.control.metaworld_views import VIEWS
    from lookact.plots.task_sheet import draw_task_sheet

    named = arguments.tasks or [f"{name}-v3" for name in VIEWS]
    return draw_task_sheet(named, count=arguments.count, title=arguments.title)


def read_curve(path: Path, key: str | None) -> Curve:
    """One metric of a run or one column of a table, by what the file is."""
    from lookact.plots.learning_curve import read_eval_csv, read_metrics

    if path.suffix.lower() == ".csv":
        return read_eval_csv(path, key or SUCCESS)
    return read_metrics(path, key or f"eval/{SUCCESS}")


def labelled(word: str) -> tuple[str, Path]:
    """The curve's name and its file; without a name, the run's folder gives one."""
    name, equals, path = word.partition("=")
    if equals and not Path(word).exists():
        return name, Path(path)
    given = Path(word)
    return (given.parent.name or given.stem if given.suffix else given.name), given


def mark(text: str) -> tuple[str, float]:
    """An argparse type: a name and a height."""
    name, _, height = text.rpartition("=")
    try:
        return name, float(height)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no mark: write it like random=0.12") from None
