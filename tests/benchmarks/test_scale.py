import json
from pathlib import Path

import pytest

from benchmarks.scale import Laps, gain_row, learner, make_context, ray_rows
from benchmarks.scale_costs import KNOWN, measure_runs, predict, read_runs
from benchmarks.walks import make_specs
from lookact.rollout.ray.worker import RolloutWorker

RECORD = Path(__file__).parents[2] / "benchmarks/scale/scale.json"
LAPS = Laps(one=(4.0, 6.0), two=(2.5, 3.0), learn=(2.0, 3.0), ahead=(5.0, 6.0))


def test_gains_stand_beside_their_ideals():
    workers, ahead = ray_rows(LAPS)
    assert workers.name == "acting with two workers (ideal 2.00)"
    assert workers.ratio_range == (1.6, 2.0)
    # in turn 6 and 9 seconds, of which the longer half is 4 and 6
    assert ahead.name == "acting ahead with one worker (ideal 1.50)"
    assert ahead.ratio_range == (1.2, 1.5)
    assert (ahead.ours, ahead.against) == ("5.50 s", "in turn 7.50 s")


def test_a_row_keeps_every_lap():
    row = gain_row("x", LAPS.two, "one", LAPS.one, 2.0, LAPS)
    assert row.detail["laps"]["learn"] == (2.0, 3.0)
    assert row.detail["ideal"] == 2.0


def test_workers_and_learner_do_the_benchs_work(folder, load):
    worker = RolloutWorker(lambda: make_context(folder, load))
    episodes = worker.run(make_specs(load), -1)
    assert [len(episode.turns) for episode in episodes] == [load.turns] * load.environments
    learner(folder, load)(episodes)


@pytest.mark.slow
def test_runs_that_are_predicted_are_larger_than_those_that_are_known(chat, load):
    runs = measure_runs(chat, load)
    tokens = [run.work.prompt_tokens for run in runs]
    assert len(runs) == KNOWN + 2
    assert max(tokens[:KNOWN]) < max(tokens[KNOWN:])
    assert all(run.act_seconds > 0 and run.learn_seconds > 0 for run in runs)


def test_the_record_was_predicted_to_within_a_third():
    """Seconds that were measured once, beside what rates from smaller runs say: no clock is read here."""
    rows = json.loads(RECORD.read_text(encoding="utf-8"))["rows"]
    (detail,) = [row["detail"] for row in rows if row["name"].startswith("seconds beside")]
    shape, runs = read_runs(detail)
    for run, (acted, learned) in zip(runs[KNOWN:], predict(shape, runs)):
        assert acted == pytest.approx(run.act_seconds, rel=0.33)
        assert learned == pytest.approx(run.learn_seconds, rel=0.33)
