"""world-duel: a world model learns to foresee, an explorer learns to surprise it, and each makes the other better.

Phase teacher: random actions, and the next wrist frame's tokens foreseen from frames, actions, state and memory. Phase
student: the world model stands still, and an explorer is paid for moving its memory and for what it could not foresee.
Phase adversarial: both in turn.
"""

from __future__ import annotations

import time
from typing import Any

from lookact.recipes.world_duel.config import Config
from lookact.recipes.world_duel.phases import (
    begin_phase,
    fight,
    gather_data,
    is_due,
    open_players,
    phase_at,
    planned,
    study,
    teach,
)
from lookact.recipes.world_duel.report import EpisodeLines
from lookact.recipes.world_duel.runs import collect, evaluate, finish, report_on
from lookact.training.run import Run

__all__ = ["collect", "evaluate", "main"]


def main(cfg: Config, run: Run) -> dict[str, Any]:
    players = open_players(cfg, run)
    weights, state = players.weights(cfg), players.state()
    data = gather_data(players, cfg, run)
    run.restore(weights=weights, state=state)
    lines = EpisodeLines(run.folder, run.done)
    report: dict[str, Any] = {}

    for step in run.steps(sum(planned(cfg).values()), cfg.phase):
        phase, number = phase_at(cfg, step)
        began = time.perf_counter()
        if number == 1:
            begin_phase(players, data, cfg, phase)

        # look, act and learn
        if phase == "teacher":
            metrics = teach(players, data, cfg, number)
        elif phase == "student":
            metrics, _ = study(players, cfg, number)
        else:
            metrics = fight(players, data, cfg, number)
        learned = time.perf_counter()
        metrics |= {"time/learn": learned - began, "time/cpu": time.process_time()}

        # report
        shown = "world/accuracy" if "world/accuracy" in metrics else "reward/total"
        if not is_due(number, planned(cfg)[phase], cfg.evaluation.times):
            lines.add(step, phase, metrics)
            run.log(metrics, step, show=shown)
            continue
        report, numbers = report_on(players, data, cfg, run, phase, step)
        metrics |= numbers | {"time/evaluate": time.perf_counter() - learned}
        lines.add(step, phase, metrics)
        run.log(metrics, step, show=shown)
        run.save(step, weights=weights, state=state, metrics=metrics, keep=cfg.evaluation.keep)
    players.worlds.close()
    return finish(players, data, cfg, run, report)
