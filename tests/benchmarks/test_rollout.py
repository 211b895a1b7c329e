import pytest

from benchmarks.lockstep import collect_in_lockstep
from benchmarks.rollout import Episodes16, SlowWalk, hf_rollout, make_load, make_specs
from benchmarks.timing import CPU, WALL
from benchmarks.walks import make_walks, open_checkpoint
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler

WORK = Episodes16(envs=3, episodes=7, slow_turns=2, sleep_seconds=0.01, turns=3)


@pytest.mark.slow
def test_all_sides_run_the_same_episodes(folder):
    ways = [hf_rollout(folder, WORK, how, slow) for how in ("lockstep", "inline", "threads") for slow in (False, True)]
    found = [{key: value for key, value in way().items() if key not in (CPU, WALL)} for way in ways]
    assert found == [found[0]] * 6
    # lengths of 1, 2, 3, 1, 2, 3, 1 turns
    assert (found[0]["episodes"], found[0]["turns"]) == (7, 13)


def test_the_rival_gives_the_same_episodes_to_the_last_bit(folder):
    walks, specs, chat = make_walks(make_load(WORK)), make_specs(WORK), open_checkpoint(folder)
    ours, theirs = (
        run(specs, [SlowWalk(walks) for _ in range(3)], HFSampler(chat, make_load(WORK).sampling))
        for run in (collect, collect_in_lockstep)
    )
    assert [episode.id for episode in ours] == [episode.id for episode in theirs]
    assert [t.decision.logprobs.tolist() for e in ours for t in e.turns] == [
        t.decision.logprobs.tolist() for e in theirs for t in e.turns
    ]


def test_only_the_first_environment_is_slow_and_lengths_vary_where_turns_are_many():
    assert [spec.options["turns"] for spec in make_specs(WORK)] == [1, 2, 3, 1, 2, 3, 1]
    assert {spec.options["turns"] for spec in make_specs(Episodes16(turns=3, slow_turns=3))} == {3}
