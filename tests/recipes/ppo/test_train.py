import json
from dataclasses import replace

import pytest
from safetensors.torch import load_file

from lookact.config import check
from lookact.errors import TokenMismatch
from lookact.recipes.ppo import train as vqa_ppo
from lookact.recipes.ppo.config import PRESETS
from lookact.recipes.ppo.train import collect, evaluate, main

EXPLAINED = ("rollout/score", "reward/answer", "reward/format", "reward/turn", "reward/progress",
             "policy/explained_variance", "policy/mismatch_gap_max", "policy/kl", "loss/value")  # fmt: skip


ENDS = {"before-greedy", "before-sampled", "after-greedy", "after-sampled"}


def told(folder):
    """Every step's numbers but the seconds, which no two runs share."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if not name.startswith("time/")} for line in lines]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_within_their_bounds(name):
    assert check(PRESETS[name]).env.max_turns > 1


@pytest.mark.slow
def test_the_debug_preset_runs_from_end_to_end(train, tmp_path):
    result = train(main, PRESETS["debug"])
    assert set(result) == {"best_constant", "before", "after", "seconds"}
    assert {"score", "ci", "answered"} <= result["after"]["greedy"].keys()
    steps = told(tmp_path / "run")
    assert len(steps) == PRESETS["debug"].learn.iterations
    assert set(EXPLAINED) <= steps[-1].keys()
    # the critic's own time is over in the last step
    assert "loss/policy" not in steps[0]
    assert "loss/policy" in steps[-1]
    # small as it is, it learns: every step has a gradient, and the weights move
    assert all(step["optim/critic_grad_norm"] > 0 for step in steps)
    assert steps[-1]["optim/grad_norm"] > 0
    learned, started = (load_file(tmp_path / "run" / name / "model.safetensors") for name in ("checkpoint-2", "sft"))
    assert any(not learned[key].equal(started[key]) for key in started)
    measured = evaluate(
        PRESETS["debug"], checkpoint=tmp_path / "run" / "best", episodes=3, greedy=True, dummy=False, folder=tmp_path
    )
    assert measured["questions"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["shared", "separate"])
def test_a_killed_and_resumed_run_ends_as_an_unbroken_one(vqa_config, train, tmp_path, monkeypatch, backbone, kept_in):
    cfg = replace(vqa_config, critic=replace(vqa_config.critic, backbone=backbone))
    train(main, cfg, "unbroken")

    def kill(tracker, episodes, step, **shown):
        if step == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(vqa_ppo, "show_episodes", kill)
        with pytest.raises(KeyboardInterrupt):
            train(main, cfg, "killed")
    train(main, cfg, "killed", resume=True)
    assert told(tmp_path / "killed") == told(tmp_path / "unbroken")
    assert kept_in(tmp_path / "killed") == kept_in(tmp_path / "unbroken")
    assert kept_in(tmp_path / "killed").keys() == ENDS | {f"step-00000{step}" for step in (1, 2, 3)}
    files = ["model", "value_head/model", *(["critic/model"] if backbone == "separate" else [])]
    for file in files:
        one, other = (
            load_file(tmp_path / name / f"checkpoint-3/{file}.safetensors") for name in ("killed", "unbroken")
        )
        assert all(one[key].equal(other[key]) for key in one)


@pytest.mark.slow
def test_a_tampered_tokenizer_is_refused(vqa_config, train, tmp_path):
    cfg = replace(vqa_config, learn=replace(vqa_config.learn, iterations=1))
    train(main, cfg)
    path = tmp_path / "run" / "model" / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    path.write_text(json.dumps(content))
    with pytest.raises(TokenMismatch, match="vocabulary: 2 ids differ"):
        train(main, cfg, resume=True)


@pytest.mark.slow
def test_collected_episodes_are_kept_and_counted(vqa_config, tmp_path):
    first = collect(vqa_config, checkpoint=None, episodes=2, out=tmp_path)
    second = collect(vqa_config, checkpoint=None, episodes=3, out=tmp_path)
    assert (first["collected"], second["collected"], second["kept"]) == (2, 1, 2)
    assert second["episodes"] == 3


def explained(folder):
    """The critic's explained variance, step by step."""
    return [step["policy/explained_variance"] for step in told(folder)]


@pytest.mark.slow
def test_ppo_learns_to_answer(vqa_config, train, tmp_path):
    """From so few demonstrations that most replies are neither a move nor an answer."""
    cfg = replace(
        vqa_config,
        env=replace(vqa_config.env, types=("object_size_estimation",), max_turns=2),
        vision_pretraining=replace(vqa_config.vision_pretraining, rooms=0),
        sft=replace(vqa_config.sft, demonstrations=64, epochs=4, batch_size=16),
        expert=replace(vqa_config.expert, guess_fraction=1.0),
        credit=replace(vqa_config.credit, method="turn"),
        critic=replace(vqa_config.critic, lr=1e-2, warmup=2),
        learn=replace(vqa_config.learn, iterations=16, episodes=40, minibatch_size=20, lr=2e-3, lr_schedule="constant"),
        kl=replace(vqa_config.kl, reference="none"),
        evaluation=replace(vqa_config.evaluation, every=100, final_episodes=40),
    )
    result = train(main, cfg)
    before, after = result["before"]["sampled"], result["after"]["sampled"]
    assert before["answered"] < 0.5 < 0.8 < after["answered"]
    assert after["score"] > before["score"]
    by_step = explained(tmp_path / "run")
    assert sum(by_step[-4:]) / 4 > by_step[0] + 0.2


@pytest.mark.learn
@pytest.mark.parametrize("seed", range(3))
def test_the_small_preset_beats_its_start_and_the_best_constant_guess(seed, train, tmp_path):
    result = train(main, replace(PRESETS["small"], seed=seed))
    for kind in ("greedy", "sampled"):
        before, after, constant = (result[column][kind] for column in ("before", "after", "best_constant"))
        assert after["score"] >= before["score"] + 0.1
        # of the types alone only this one is that far ahead on every seed
        for name in ("score", "object_size_estimation"):
            assert after[name] >= constant[name] + 0.1
    by_step = explained(tmp_path / "run")
    assert sum(by_step[-5:]) / 5 > sum(by_step[:5]) / 5 + 0.1
