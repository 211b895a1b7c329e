"""A run folder: what was asked, with which versions, what came of it, and where to go on from.

with open_run(folder, config, resume=None, auto_resume=True) as run:
    run.restore(weights=weights, state=state)
    for step in run.steps(total):
        ...
        run.log(metrics, step)
        run.save(step, weights=weights, state=state, metrics=metrics)
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from lookact.errors import ConfigError, DataError, Terminated
from lookact.protocols import Stateful, Tracker
from lookact.training.atomic_io import TEMPORARY, discard, place, recover, sync, sync_tree, write_text
from lookact.training.checkpoint import (
    MANIFEST,
    Best,
    Checkpoint,
    abandon_newer,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
    verify,
)
from lookact.training.distributed import barrier, broadcast, gather, is_main
from lookact.training.evaluation import rewind_episodes
from lookact.training.progress import Progress
from lookact.training.run_files import (
    LOCK,
    LOG,
    METRICS,
    holds_run,
    log_level,
    refuse_second_run,
    write_config,
    write_origin,
    write_versions,
)
from lookact.training.termination import TERMINATION
from lookact.training.trackers import FanOut, JsonlTracker, TensorBoardTracker, WandbMode, WandbTracker, cut_after
from lookact.training.weights import Weights, gathered, set_rng_state

logger = logging.getLogger(__name__)
ARTIFACT_ROOT = "ARTIFACT_ROOT"
"""The environment variable that names a scratch disk: it keeps every checkpoint, the run's folder the newest."""
OWNER = "owner.txt"
"""In the run's folder on that disk: the path of the run that it belongs to."""


@dataclass
class Run:
    """An open run. In a distributed run only the main process writes; the others' tracker is silent."""

    folder: Path
    config: Mapping[str, Any]
    tracker: Tracker
    resumed_from: Path | None = None
    """The checkpoint this run goes on from, found whole."""
    done: int = 0
    """Steps finished before this process began."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """The recipe and the preset behind the config."""
    bar: Progress[int] | None = None
    save_on_sigterm: bool = True
    """False where a checkpoint between the planned ones could not be continued bit for bit."""
    closing: ExitStack = field(default_factory=ExitStack, repr=False)
    """Trackers, log and lock, closed in turn by `close`."""
    _weights: Mapping[str, Weights] | None = field(default=None, repr=False)
    _state: Mapping[str, Stateful | Any] = field(default_factory=dict, repr=False)
    _logged: Mapping[str, float] = field(default_factory=dict, repr=False)
    _saved: int = -1
    """What was handed to `restore` and `log` last, and the step that was saved last: enough to save one more."""

    def restore(self, *, weights: Mapping[str, Weights], state: Mapping[str, Stateful | Any]) -> Checkpoint | None:
        """Fill modules and Statefuls and set the random streams from the checkpoint, if this run goes on from one."""
        self._weights, self._state = weights, state
        if self.resumed_from is None:
            return None
        checkpoint = load_checkpoint(self.resumed_from, weights=weights, state=state)
        set_rng_state(checkpoint.random)
        return checkpoint

    def steps(self, total: int, label: str = "training") -> Iterator[int]:
        """The steps still to do, of 1 to `total`, with a progress bar. SIGTERM ends them after a checkpoint."""
        self.bar = Progress(range(self.done + 1, total + 1), label, done=min(self.done, total))
        with TERMINATION.deferred():
            for step in self.bar:
                yield step
                # every process ends after the same step, whichever heard of it first
                if any(gather(TERMINATION.asked)):
                    self._end_after(step)

    def _end_after(self, step: int) -> None:
        """Save the finished step, unless it was saved already, and end."""
        if self._saved != step and self._weights is not None and self.save_on_sigterm:
            self.save(step, weights=self._weights, state=self._state, metrics=self._logged, keep=None)
        raise Terminated

    def log(self, metrics: Mapping[str, float], step: int, *, show: str | None = None) -> None:
        """Send one step's numbers to the tracker; `show` names the one to see beside the progress bar."""
        self.tracker.log(metrics, step)
        self._logged = metrics
        if show is not None and self.bar is not None:
            self.bar.remark = f"{show} {float(metrics[show]):.4g}"

    def save(
        self,
        step: int,
        *,
        weights: Mapping[str, Weights],
        state: Mapping[str, Stateful | Any],
        metrics: Mapping[str, float],
        keep: int | None = 3,
        best: Best | None = None,
    ) -> None:
        """Write a checkpoint of the finished `step`, from which `restore` goes on bit for bit."""
        weights, state = gathered(weights, state)
        if is_main():
            sync(self.folder / METRICS)
            path = save_checkpoint(
                self.folder,
                step,
                weights=weights,
                state=state,
                metrics=metrics,
                config=self.config,
                origin=self.origin,
                keep=keep,
                best=best,
            )
            logger.info("saved %s", path.name)
        self._saved = step
        barrier()

    def close(self) -> None:
        """Close the trackers, the log and the lock."""
        self.closing.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            # into training.log alone: what the screen shows is the command line's choice
            logger.debug("the run ended with an error", exc_info=error)
        self.close()


def open_run(
    folder: Path,
    config: Mapping[str, Any],
    *,
    origin: Mapping[str, Any] | None = None,
    resume: Path | None = None,
    auto_resume: bool = False,
    wandb: WandbMode = "off",
    tensorboard: bool = True,
    file_level: str = "debug",
) -> Run:
    """Open `folder` for a new run, or to go on: from `resume` (a checkpoint or run folder), or from its own newest.

    A folder that holds a run already is refused unless one of the two is asked for. Going on from step k cuts
    `metrics.jsonl` after k and sets newer checkpoints aside, so that it ends as an unbroken run would. `origin` says
    which recipe and preset the config is of: it is kept in the folder and in every checkpoint. `training.log` keeps
    what is logged from `file_level` on.
    """
    if not is_main():
        start = broadcast(None)
        run = Run(folder, config, FanOut([]), start, verify(start) if start else 0, origin=origin or {})
        run.closing.enter_context(TERMINATION.handled())
        return run
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as closing:
        closing.enter_context(lock_folder(folder))
        closing.enter_context(TERMINATION.handled())
        recover(folder)
        start = _find_start(folder, resume, auto_resume)
        done = verify(start, hashes=False) if start else 0
        _rewind(folder, start, done)
        closing.callback(_close_log, _open_log(folder, file_level))
        tracker = _open_trackers(folder, config, done, wandb, tensorboard)
        closing.callback(tracker.close)
        write_config(folder, config, step=done)
        write_origin(folder, origin or {})
        write_versions(folder)
        if start is not None:
            logger.info("going on from %s after step %d", start.name, done)
        broadcast(start)
        return Run(folder, config, tracker, start, done, origin=origin or {}, closing=closing.pop_all())


def _open_trackers(folder: Path, config: Mapping[str, Any], done: int, wandb: WandbMode, tensorboard: bool) -> Tracker:
    trackers: list[Tracker] = []
    if wandb != "off":
        trackers.append(WandbTracker(folder, config, mode=wandb))
    if tensorboard:
        trackers.append(TensorBoardTracker(folder, done=done))
    return FanOut([JsonlTracker(folder), *trackers])


def lock_folder(folder: Path) -> TextIO:
    """Refuse a folder that another live process trains in. The lock goes with the process, however it ends."""
    file = (folder / LOCK).open("w")
    try:
        # lockf, not flock: workers forked from a killed run do not inherit it
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ConfigError(f"another process is training in {folder}: wait for it, or give another --name") from None
    return file


def _find_start(folder: Path, resume: Path | None, auto_resume: bool) -> Path | None:
    if resume is not None:
        start = resume if (resume / MANIFEST).exists() else latest_checkpoint(resume)
        if start is None:
            raise DataError(f"nothing to resume: {resume} is neither a checkpoint nor a folder with a whole one")
        verify(start)
        if holds_run(folder) and start.resolve().parent != folder.resolve():
            raise ConfigError(f"{folder} holds another run than {start}: give a fresh --name")
        return start
    if not auto_resume:
        refuse_second_run(folder)
    return latest_checkpoint(folder)


def _rewind(folder: Path, start: Path | None, done: int) -> None:
    """Make the folder as it was when `start` was written."""
    elsewhere = start.parent if start is not None and start.resolve().parent != folder.resolve() else None
    if elsewhere is not None and (elsewhere / METRICS).exists():
        shutil.copy(elsewhere / METRICS, folder / METRICS)
    cut_after(folder / METRICS, None if start is None else done)
    abandon_newer(folder, -1 if start is None else done)
    rewind_episodes(folder, -1 if start is None else done, elsewhere)


def _open_log(folder: Path, level: str) -> logging.Handler:
    handler = logging.FileHandler(folder / LOG, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.setLevel(log_level(level))
    # a disk that fills is told by what fails next, and once, not by logging with a traceback for every line
    handler.handleError = lambda record: None  # type: ignore[method-assign]
    package = logging.getLogger("lookact")
    package.setLevel(logging.DEBUG)
    package.addHandler(handler)
    return handler


def _close_log(handler: logging.Handler) -> None:
    logging.getLogger("lookact").removeHandler(handler)
    # what a full disk did not take is lost
    with suppress(OSError):
        handler.close()


# ---- checkpoints on a scratch disk


def artifact_folder(run: Run) -> Path | None:
    """The run's folder under `ARTIFACT_ROOT`, by recipe and name, or None where the variable is not set."""
    root = os.environ.get(ARTIFACT_ROOT, "")
    return Path(root, run.folder.parent.name, run.folder.name) if root else None


def begin_artifacts(run: Run) -> None:
    """Set aside what the scratch disk holds beyond the step this run goes on from.

    The folder there has one owner and a lock: two runs of one name would mix their histories.
    """
    folder = artifact_folder(run)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        run.closing.enter_context(lock_folder(folder))
        owner, own = folder / OWNER, str(run.folder.resolve())
        other = owner.read_text(encoding="utf-8").strip() if owner.exists() else own
        # who goes on from a checkpoint there takes it over
        if other != own and (run.resumed_from is None or run.resumed_from.resolve().parent != folder.resolve()):
            remedy = f"give another --name or {ARTIFACT_ROOT}, or delete {OWNER} there if the run has moved"
            raise ConfigError(f"{folder} holds the checkpoints of {other}: {remedy}")
        write_text(owner, f"{own}\n")
        abandon_newer(folder, run.done if run.resumed_from is not None else -1)
        logger.info("checkpoints are kept in %s, the newest here too", folder)


def save_artifacts(
    run: Run,
    step: int,
    *,
    weights: Mapping[str, Weights],
    state: Mapping[str, Stateful | Any],
    metrics: Mapping[str, float],
    keep: int,
    best: Best,
) -> None:
    """A checkpoint in the run's folder; with `ARTIFACT_ROOT`, the newest `keep` there and a copy of the last here."""
    folder = artifact_folder(run)
    if folder is None:
        run.save(step, weights=weights, state=state, metrics=metrics, keep=keep, best=best)
        return
    how: Any = {"metrics": metrics, "config": run.config, "keep": keep, "best": best}
    path = save_checkpoint(folder, step, weights=weights, state=state, **how)
    bring_back(path, run.folder)
    run._saved = step


def bring_back(checkpoint: Path, folder: Path) -> None:
    """Copy a checkpoint into `folder`, whole or not at all, in place of the older ones there."""
    older = [path for path in folder.glob("checkpoint-*") if path.name != checkpoint.name]
    temporary = folder / (TEMPORARY + checkpoint.name)
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(checkpoint, temporary)
    sync_tree(temporary)
    place(temporary, folder / checkpoint.name)
    for path in older:
        discard(path)
