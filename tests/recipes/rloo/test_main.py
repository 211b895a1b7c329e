"""Whole runs of nav-rloo, as short as they can be: what they report, and how they end when something breaks."""

import errno
import itertools
import json
import os
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from lookact.algorithms import rollouts
from lookact.algorithms.vlm_settings import SFT
from lookact.config import to_mapping
from lookact.errors import DataError, TokenMismatch, TrainingStopped
from lookact.models.vlm.reference import CopyReference
from lookact.recipes.rloo import train as rloo
from lookact.recipes.rloo.config import PRESETS
from lookact.recipes.rloo.evaluate import open_checkpoint
from lookact.recipes.rloo.train import main
from lookact.rollout.samplers.hf import HFSampler
from lookact.tasks.navigation import NavigationTask
from lookact.tasks.registry import find_task, make_task
from lookact.training import checkpoint
from lookact.training.checkpoint import latest_checkpoint, verify
from lookact.training.run import open_run

pytestmark = pytest.mark.slow


def told(folder):
    """Every step's numbers but the seconds, which no two runs share."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if not name.startswith("time/")} for line in lines]


def weights(folder, file="model"):
    return load_file(folder / f"{file}.safetensors")


def equal(one, other):
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


def learning(cfg, **settings):
    return replace(cfg, learn=replace(cfg.learn, **settings))


def test_the_debug_preset_runs_from_end_to_end(train, tmp_path):
    debug = PRESETS["debug"]
    result = train(main, debug)
    for when in ("before", "after"):
        for how in ("greedy", "sampled"):
            report = result[when][how]
            assert report["episodes"] == debug.evaluation.final_episodes
            assert {"success_rate", "spl", "turns", "valid_action_rate"} <= report["ci"].keys()
    assert [line["step"] for line in told(tmp_path / "run")] == list(range(1, debug.learn.iterations + 1))
    assert verify(tmp_path / "run/best") >= 1
    # small as it is, it learns: every step has a gradient, and the weights move
    assert all(line["optim/grad_norm"] > 0 for line in told(tmp_path / "run"))
    assert not equal(weights(tmp_path / "run/best"), weights(tmp_path / "run/sft"))


def test_a_step_learns_and_reports_what_it_did(nav_started, nav_start, train, tmp_path):
    train(main, nav_started)
    first, second = told(tmp_path / "run")
    assert 0 < first["policy/mismatch_gap_max"] < 1e-4
    assert 0 < second["policy/mismatch_gap_max"] < 1e-4
    assert first["rollout/zero_variance_groups"] < 1.0
    assert first["optim/grad_norm"] > 0
    assert not equal(weights(tmp_path / "run/checkpoint-1"), weights(nav_start))
    assert not equal(weights(tmp_path / "run/checkpoint-1"), weights(tmp_path / "run/checkpoint-2"))
    assert {path.suffix for path in (tmp_path / "run/samples").iterdir()} == {".png", ".txt"}


def test_more_passes_move_further_and_only_the_first_must_agree_with_the_engine(nav_started, train, tmp_path):
    train(main, learning(nav_started, iterations=1, epochs=3, credit="turn", loss_on="reply", entropy_coef=0.01))
    (line,) = told(tmp_path / "run")
    assert line["policy/mismatch_gap_max"] < 1e-4


@pytest.mark.parametrize("kind", ["frozen", "ema"])
def test_the_distance_to_where_rl_began_steers_its_own_weight(nav_started, train, tmp_path, kind):
    kl = replace(nav_started.kl, reference=kind, decay=0.5, target=1e-4, coef=0.1, horizon=80)
    train(main, replace(learning(nav_started, lr=1e-3), kl=kl))
    first, second = told(tmp_path / "run")
    assert first["policy/kl"] == pytest.approx(0.0, abs=1e-9)
    # eight episodes of a horizon of eighty: a fifth too little, then too much
    assert first["policy/kl_coef"] == pytest.approx(0.1 * (1 - 0.2 * 8 / 80))
    assert second["policy/kl"] > 1e-4
    assert second["policy/kl_coef"] == pytest.approx(first["policy/kl_coef"] * (1 + 0.2 * 8 / 80))


def test_adapters_learn_are_saved_and_go_on(nav_started, train, tmp_path):
    cfg = replace(
        learning(nav_started, lr=1e-2),
        model=replace(nav_started.model, lora_rank=4),
        kl=replace(nav_started.kl, reference="frozen"),
    )
    train(main, cfg, "unbroken")
    train(main, learning(cfg, iterations=1), "parts")
    train(main, cfg, "parts", resume=True)
    one, other = (weights(tmp_path / name / "checkpoint-2", "adapter_model") for name in ("unbroken", "parts"))
    assert equal(one, other)
    assert any(tensor.any() for name, tensor in one.items() if "lora_B" in name)
    assert told(tmp_path / "unbroken") == told(tmp_path / "parts")
    chat = open_checkpoint(cfg, tmp_path / "parts/checkpoint-2")
    assert any(p.any() for name, p in chat.named_parameters() if "lora_B" in name)


def test_zero_variance_groups_are_refilled_with_other_starts_and_it_resumes(nav_started, train, tmp_path, monkeypatch):
    asked = []
    collect = rollouts.LocalRollouts.collect

    def listen(self, specs, version):
        asked.append((version + 1, [spec.id for spec in specs], sorted({spec.group for spec in specs})))
        return collect(self, specs, version)

    monkeypatch.setattr(rollouts.LocalRollouts, "collect", listen)
    # an arrival or nothing, in pairs: most of them are equal
    cfg = replace(nav_started, env=replace(nav_started.env, progress_weight=0.0))
    cfg = learning(cfg, groups=3, group_size=2, zero_variance="refill", refill_limit=2)
    train(main, cfg)
    lines = told(tmp_path / "run")
    assert sum(line["rollout/refills"] for line in lines) > 0
    for step, line in enumerate(lines, 1):
        rounds = [ids for at, ids, _ in asked if at == step]
        assert line["rollout/refills"] == len(rounds) - 1 <= 2
        # the first round is as ever, and each further one has no more starts than were missing
        assert rounds[0] == [
            spec.id for spec in NavigationTask(cfg.env).specs(0, "train", groups=3, group_size=2, step=step)
        ]
        assert all(len(later) <= len(before) for before, later in itertools.pairwise(rounds))
        episodes = [name for names in rounds for name in names]
        assert len(set(episodes)) == len(episodes)
        groups = [group for at, _, numbers in asked if at == step for group in numbers]
        assert len(set(groups)) == len(groups)
        # stopped because it was full, or because the rounds were spent
        useful = round(len(episodes) * (1 - line["rollout/zero_variance_groups"])) // 2
        assert useful == 3 or (useful < 3 and len(rounds) == 3)
    unbroken = weights(tmp_path / "run/checkpoint-2")
    with open_run(tmp_path / "run", to_mapping(cfg), resume=tmp_path / "run/checkpoint-1", tensorboard=False) as run:
        main(cfg, run)
    assert equal(weights(tmp_path / "run/checkpoint-2"), unbroken)
    assert told(tmp_path / "run") == lines


def test_a_filter_on_both_sides_passes_the_check(nav_started, train, tmp_path):
    train(main, replace(learning(nav_started, iterations=1), sampling=replace(nav_started.sampling, top_p=0.9)))
    assert told(tmp_path / "run")[0]["policy/mismatch_gap_max"] < 1e-4


def other_temperature(chat, sampling, **how):
    return HFSampler(chat, replace(sampling, temperature=1.2), **how)


def other_weights(chat, sampling, **how):
    stale = CopyReference(chat).chat
    with torch.no_grad():
        stale.causal.model.language_model.layers[0].mlp.up_proj.weight.mul_(1.05)
    return HFSampler(stale, sampling, **how)


@pytest.mark.parametrize("engine", [other_temperature, other_weights])
def test_a_broken_engine_stops_the_run_before_it_learns(nav_started, train, tmp_path, monkeypatch, engine):
    monkeypatch.setattr(rollouts, "HFSampler", engine)
    with pytest.raises(TokenMismatch, match="engine and learner disagree"):
        train(main, nav_started)
    assert latest_checkpoint(tmp_path / "run") is None


def test_garbage_is_counted_and_teaches_nothing(nav_config, train, tmp_path, caplog):
    train(main, nav_config)
    assert "step 1: all returns within each group are equal, no gradient" in caplog.messages
    for line in told(tmp_path / "run"):
        assert (line["rollout/valid_action_rate"], line["rollout/dropout_rate"]) == (0.0, 1.0)
        assert (line["rollout/zero_variance_groups"], line["optim/grad_norm"], line["loss/total"]) == (1.0, 0.0, 0.0)
    assert equal(weights(tmp_path / "run/checkpoint-2"), weights(tmp_path / "run/model"))


class Spoiled:
    """A room in which `spoil` has its say on what every call returns."""

    made = 0

    def __init__(self, room, spoil):
        self.room, self.spoil, self.number = room, spoil, Spoiled.made
        self.resets = 0
        Spoiled.made += 1

    def reset(self, *, seed, options):
        self.resets += 1
        return self.spoil(self, "reset", self.room.reset(seed=seed, options=options))

    def step(self, action):
        return self.spoil(self, "step", self.room.step(action))

    def close(self):
        self.room.close()


class SpoiledTask:
    """A task whose rooms are spoiled."""

    def __init__(self, task, spoil):
        self.task, self.spoil = task, spoil

    def __getattr__(self, name):
        return getattr(self.task, name)

    def make_env(self):
        return Spoiled(self.task.make_env(), self.spoil)


@pytest.fixture
def spoil(monkeypatch):
    def set_up(how):
        Spoiled.made = 0
        opened = rloo.open_rollouts

        def spoiled_rollouts(policy, task, **rest):
            return opened(policy, SpoiledTask(task, how), **rest)

        monkeypatch.setattr(rloo, "open_rollouts", spoiled_rollouts)

    return set_up


def test_an_environment_that_throws_now_and_then_is_counted_and_left_out(nav_started, train, tmp_path, spoil):
    def break_one(room, call, result):
        if room.number == 0 and call == "reset":
            raise OSError("no such room")
        return result

    spoil(break_one)
    train(main, nav_started)
    assert [line["rollout/error_rate"] for line in told(tmp_path / "run")] == [0.125, 0.125]


def test_too_many_failed_episodes_stop_the_run_and_say_why(nav_started, train, tmp_path, spoil):
    def break_later(room, call, result):
        if room.resets == 2 and call == "step" and room.number % 2:
            raise RuntimeError("the floor gave way")
        return result

    spoil(break_later)
    with pytest.raises(TrainingStopped, match="50% of the episodes failed, the last with: RuntimeError: the floor"):
        train(main, nav_started)
    assert latest_checkpoint(tmp_path / "run").name == "checkpoint-1"


def test_a_loss_that_is_no_number_is_skipped_and_five_in_a_row_end_the_run(nav_started, train, tmp_path, spoil):
    def poison(room, call, result):
        if room.resets > 1 and call == "step":
            return (result[0], float("nan"), *result[2:])
        return result

    spoil(poison)
    cfg = replace(learning(nav_started, iterations=9), kl=replace(nav_started.kl, reference="frozen", target=1.0))
    with pytest.raises(TrainingStopped, match="loss nan"):
        train(main, cfg)
    lines = told(tmp_path / "run")
    assert [line["optim/skipped"] for line in lines] == [0, 1, 2, 3, 4]
    assert [line["loss/total"] is None for line in lines] == [False, True, True, True, True]
    assert latest_checkpoint(tmp_path / "run").name == "checkpoint-5"
    last = weights(tmp_path / "run/checkpoint-5")
    assert equal(last, weights(tmp_path / "run/checkpoint-3"))
    assert all(tensor.isfinite().all() for tensor in last.values())


def test_a_full_disk_leaves_the_last_checkpoint_and_the_run_goes_on_when_there_is_room(
    nav_started, train, tmp_path, monkeypatch
):
    train(main, nav_started, "unbroken")
    save = torch.save

    def full(record, path):
        if "checkpoint-2" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(record, path)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint.torch, "save", full)
        with pytest.raises(DataError, match=r"no space left .*--auto-resume; the checkpoints before it are whole"):
            train(main, nav_started, "full")
    assert latest_checkpoint(tmp_path / "full").name == "checkpoint-1"
    train(main, nav_started, "full", resume=True)
    assert equal(weights(tmp_path / "full/checkpoint-2"), weights(tmp_path / "unbroken/checkpoint-2"))
    assert told(tmp_path / "full") == told(tmp_path / "unbroken")


def test_a_run_over_an_environment_server_equals_one_in_this_process(serve_app, nav_started, train, tmp_path):
    from lookact.envs.remote.app import LIMITS, create_app

    cfg = replace(nav_started, sft=SFT(demonstrations=12, epochs=1, lr=1e-4))
    url = serve_app(create_app(lambda seed: make_task(cfg.env, seed), name="navigation"), LIMITS)
    here = train(main, cfg, "here")
    there = train(main, replace(cfg, task=url, env=find_task(url)()), "there")
    for result in (here, there):
        del result["seconds"]
    assert there == here
    assert told(tmp_path / "there") == told(tmp_path / "here")
    assert any(line["optim/grad_norm"] > 0 for line in told(tmp_path / "here"))
    assert equal(weights(tmp_path / "there/checkpoint-2"), weights(tmp_path / "here/checkpoint-2"))
    assert not equal(weights(tmp_path / "here/checkpoint-2"), weights(tmp_path / "here/sft"))
