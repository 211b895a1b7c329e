import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lookact.algorithms import vlm_sft as chat_start
from lookact.algorithms.vlm_settings import WarmStart
from lookact.algorithms.vlm_sft import own_segments, run_log
from lookact.recipes.rloo.runs import open_policy
from lookact.recipes.rloo.start import lessons_of


@pytest.fixture(scope="module")
def policy(nav_config, tmp_path_factory):
    return open_policy(nav_config, tmp_path_factory.mktemp("start") / "model")


def with_demos(nav_config, demos):
    return lessons_of(replace(nav_config, warm_start=WarmStart(look_rooms=3, demos=demos, noise=0.5)))


def test_processes_share_the_demonstrations_and_together_have_them_all(nav_config, policy, monkeypatch):
    lessons = with_demos(nav_config, 5)
    alone = own_segments(policy, lessons)
    monkeypatch.setattr(chat_start, "world_size", lambda: 2)
    shares = []
    for me in (0, 1):
        monkeypatch.setattr(chat_start, "rank", lambda me=me: me)
        shares.append(own_segments(policy, lessons))
    assert (sorted(shares[0]), sorted(shares[1]), sorted(alone)) == ([0, 2, 4], [1, 3], [0, 1, 2, 3, 4])
    for share in shares:
        for number, segment in share.items():
            assert np.array_equal(segment.ids, alone[number].ids)
            assert np.array_equal(segment.mask, alone[number].mask)


def test_processes_share_the_looks_by_room(nav_config, policy, monkeypatch):
    seen = []
    teach = lambda chat, looks, total, **how: seen.append((sorted(looks), total))  # noqa: E731
    monkeypatch.setattr(chat_start, "pretrain_vision", teach)
    monkeypatch.setattr(chat_start, "run_log", lambda run, phase: None)
    monkeypatch.setattr(chat_start, "world_size", lambda: 2)
    for me in (0, 1):
        monkeypatch.setattr(chat_start, "rank", lambda me=me: me)
        chat_start.learn_to_see(policy, with_demos(nav_config, 5), None)
    assert seen == [([0, 1, 2, 3, 8, 9, 10, 11], 12), ([4, 5, 6, 7], 12)]


def test_moves_that_noise_put_in_are_read_and_never_learned(nav_config, policy):
    segments = own_segments(policy, with_demos(nav_config, 8)).values()
    # a turn's reply counts wholly or not at all, and some do not
    shares = {s.mask[s.turns == turn].mean() for s in segments for turn in range(s.turns[-1] + 1)}
    assert shares == {0.0, 1.0}


def test_a_phase_begun_again_writes_its_numbers_anew(tmp_path):
    run = SimpleNamespace(folder=tmp_path)
    for losses in ((3.0, 2.0), (1.0,)):
        log = run_log(run, "imitation")
        for step, loss in enumerate(losses, start=1):
            log({"loss/imitation": loss}, step)
    (line,) = (tmp_path / "warm_start/imitation.jsonl").read_text().splitlines()
    assert json.loads(line) == {"step": 1, "loss/imitation": 1.0}
