"""The navigation recipe's step, part by part and whole, each beside the way it is commonly done."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import nav_flops, nav_rollout, nav_trl, nav_update
from benchmarks.report import Aim, Row, compare, lone_row, plain, plain_times, timed_row
from benchmarks.timing import Prepare, race
from benchmarks.walks import Load, make_checkpoint
from lookact.training.progress import progress

AIM = Aim(3.0, at_least=True)
KERNELS_AIM = Aim(1.3, at_least=True)
WITHOUT_TRL = "not installed: pip install 'lookact[bench]'"
UNEQUAL = (
    "TRL: GRPOTrainer with environment_factory; tool answers carry the pictures; every reply is read as a tool call, "
    "so that episodes last all turns; its tool answers are rendered as LookAct's user turns, token for token",
    "not equal, and not to be made equal: TRL samples with its own random numbers (counts of sampled tokens are in "
    "the details); it does not execute an episode's last reply (a step takes no time on either side); it leaves a "
    "reply that was cut off without its end token (one token a turn fewer)",
    "TRL's loss is its default with advantages normalised by group, LookAct's is REINFORCE with a leave-one-out "
    "baseline; both learn from all sampled tokens, once, with one AdamW step and no reference model",
    "TRL's defaults are changed to what LookAct does here: float32, no gradient checkpointing; all its rows are one "
    "micro-batch, LookAct's hold up to the token budget",
    "TRL prepares pictures with the stock processor in its PIL variant, since the faster one needs torchvision, and "
    "again in every turn; the row says how long that took in the last repetition, and the details hold the ratio "
    "without it",
)


def main(*, load: Load | None = None, repetitions: int = 5) -> dict[str, Any]:
    """Rollout, update and whole step on a tiny checkpoint, one thread a side."""
    load = load or Load()
    few = replace(load, groups=max(1, 16 // load.size))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_checkpoint(folder, load)
        measures: list[Callable[[], Row]] = [
            lambda: pair_row("rollout", nav_rollout.keeps, nav_rollout.rereads, folder, few, repetitions),
            lambda: pair_row("rollout", nav_rollout.keeps, nav_rollout.rereads, folder, load, repetitions),
            lambda: pair_row("update", nav_update.by_episode, nav_update.by_turn, folder, load, repetitions),
            lambda: kernels_row(folder, load, repetitions),
            lambda: trl_row(folder, load, repetitions),
            lambda: flops_row(folder, load, repetitions),
        ]
        rows = [measure() for measure in progress(measures, "measuring")]
    return plain(
        rows,
        about=f"nav-rloo's step on a tiny Qwen3-VL: {load.turns} turns, {load.image_size}x{load.image_size} pictures, "
        f"replies of up to {load.reply_tokens} tokens, groups of {load.size}",
        notes=[
            f"times are CPU seconds of one thread, medians over {repetitions} repetitions taken in turn; ratio = time "
            "of the other side over LookAct's; memory is each side's peak, in brackets what it grew by after loading",
            "walks are recorded beforehand, so that environments take no time on either side",
            "rollout: keys and values kept across turns, against reading the whole conversation again in every turn "
            "(same model code, same sampled tokens); update: forward and backward with one sequence an episode, "
            "against one a turn (same gradient); kernels: the whole step, against Hugging Face's own modules",
            *UNEQUAL,
            "matrix products: FLOP/s of the whole update, against the same products done alone; attention's inner "
            "products are not counted",
        ],
    )


def pair_row(name: str, ours: Prepare, against: Prepare, folder: Path, load: Load, repetitions: int) -> Row:
    """Two ways to do one thing on the same load."""
    times = race({"ours": (ours, (folder, load)), "against": (against, (folder, load))}, repetitions=repetitions)
    return timed_row(f"{name}, {load.environments} environments", times, AIM)


def kernels_row(folder: Path, load: Load, repetitions: int) -> Row:
    """The whole step with `models/vlm/kernels`, beside the stock modules."""
    ways: dict[str, tuple[Prepare, Any]] = {
        "ours": (nav_update.whole_step, (folder, load)),
        "against": (nav_update.stock_step, (folder, load)),
    }
    return timed_row(f"kernels, {load.environments} environments", race(ways, repetitions=repetitions), KERNELS_AIM)


def trl_row(folder: Path, load: Load, repetitions: int) -> Row:
    """The whole step beside TRL's; LookAct's alone where TRL is missing."""
    name = f"whole step against TRL, {load.environments} environments"
    ours = (nav_update.whole_step, (folder, load))
    if importlib.util.find_spec("trl") is None:
        alone = race({"ours": ours}, repetitions=repetitions)
        return lone_row(name, alone, WITHOUT_TRL)
    times = race({"ours": ours, "against": (nav_trl.trains, (folder, load))}, repetitions=repetitions)
    row, against = timed_row(name, times, AIM), times["against"]
    pictures = against.facts["picture_seconds"]
    rest = (against.seconds[-1] - pictures) / times["ours"].seconds[-1]
    return replace(
        row,
        against=f"{row.against}, {pictures:.2f} s on pictures",
        detail={**(row.detail or {}), "ratio_without_trl_picture_processing": rest},
    )


def flops_row(folder: Path, load: Load, repetitions: int) -> Row:
    """The update's FLOP/s as a share of what its matrix products reach alone."""
    ways: dict[str, tuple[Prepare, Any]] = {
        "ours": (nav_flops.updates, (folder, load)),
        "against": (nav_flops.multiplies, (folder, load)),
    }
    times = race(ways, repetitions=repetitions)
    share, spread = compare(times["against"], times["ours"])
    reached, possible = (times[side].facts["flops"] / times[side].median / 1e9 for side in ("ours", "against"))
    return Row(
        name="matrix products of the update",
        ours=f"{reached:.1f} GFLOP/s",
        against=f"{possible:.1f} GFLOP/s",
        ratio=share,
        ratio_range=spread,
        detail=plain_times(times),
    )
