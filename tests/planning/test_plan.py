"""`lookact plan` from words to a plan."""

import json

import pytest

from lookact.cli import main
from lookact.errors import ConfigError
from lookact.planning.architectures import qwen3_vl
from lookact.planning.costs import planned_work, shape_of
from lookact.planning.devices import GPUS, Layout, communication_seconds, parse_gpus, predict
from lookact.planning.report import GIB, Phase, needed, phases_of

SHAPE = shape_of(qwen3_vl("8B"))
LORA = Layout(trained=87_000_000)


def plan(capsys, *words):
    assert main(["plan", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_tiny_run_fits_everywhere(capsys):
    found = plan(capsys, "nav-rloo", "--preset", "debug", "--gpu", "L4")
    assert found["fits"]
    assert all(found["fits_gb"].values())
    assert set(found["phases"]) == {"load", "rollout", "evaluate", "update"}
    for phase in found["phases"].values():
        assert phase["total"] == pytest.approx(sum(phase["bytes"].values()))
    assert found["peak"]["bytes"] == max(phase["total"] for phase in found["phases"].values())


def test_the_table_names_the_peak_and_the_remedy(capsys):
    assert main(["plan", "vqa-ppo", "--preset", "debug", "--gpu", "L4", "--learn.token_budget", "65536"]) == 0
    text = capsys.readouterr().out
    assert "| update" in text
    assert " GiB in update (" in text
    assert "turn first: --model.gradient_checkpointing true" in text


def test_a_gpu_is_named_with_its_number():
    assert parse_gpus("h100x8") == ("H100", 8)
    assert parse_gpus("L40S") == ("L40S", 1)
    with pytest.raises(ConfigError, match="unknown GPU H10"):
        parse_gpus("H10")
    with pytest.raises(ConfigError, match="at least one"):
        parse_gpus("L4x0")


def test_a_model_that_nobody_knows_is_refused(capsys):
    assert main(["plan", "nav-rloo", "--model.source", "Qwen/Qwen3-VL-9B-Instruct"]) == 2
    assert "name one of Qwen/Qwen3-VL-2B-Instruct" in capsys.readouterr().err


def test_a_phase_is_its_worst_stage():
    stages = {
        "load": {"weights": 4.0},
        "update: logits": {"weights": 4.0, "logits": 2.0},
        "update: end": {"weights": 5.0},
    }
    assert phases_of(stages) == (
        Phase("load", "load", {"weights": 4.0}),
        Phase("update", "logits", {"weights": 4.0, "logits": 2.0}),
    )


def test_a_card_keeps_some_of_itself():
    assert needed(20 * GIB) == pytest.approx(22 * GIB)


def test_more_gpus_share_the_work_but_not_the_decode_steps():
    work = planned_work(episodes=128, turns=10, image_tokens=196, text_tokens=40, reply_tokens=80)
    one = predict(SHAPE, LORA, GPUS["H100"], work, env_seconds=0.0)
    eight = predict(SHAPE, Layout(trained=87_000_000, learners=8), GPUS["H100"], work, env_seconds=0.0)
    assert eight.update == pytest.approx(one.update / 8)
    assert one.rollout / 8 < eight.rollout < one.rollout
    assert eight.total < one.total


def test_shards_communicate_more():
    work = planned_work(episodes=16, turns=10, image_tokens=196, text_tokens=40, reply_tokens=80)
    apart = Layout(trained=int(SHAPE.parameters), learners=8)
    shards = Layout(trained=int(SHAPE.parameters), learners=8, sharded=True)
    device = GPUS["H100"]
    assert communication_seconds(SHAPE, shards, device, work) > communication_seconds(SHAPE, apart, device, work) > 0
    assert communication_seconds(SHAPE, LORA, device, work) == 0


def test_a_judges_server_and_a_control_policy_are_planned_too(capsys):
    server = plan(capsys, "pref-sac", "--preset", "full", "--gpu", "L4", "--served", "Qwen/Qwen3-VL-2B-Instruct")
    assert server["phases"]["load"]["bytes"]["weights"] == pytest.approx(2 * 2.127e9, rel=0.01)
    assert server["phases"]["answer"]["total"] > server["phases"]["load"]["total"]
    # two pictures of 300 pixels a request: 9 x 9 cells of 32
    assert any("2 pictures (81 tokens each)" in line for line in server["assumptions"])
    control = plan(capsys, "vla-ppo", "--preset", "debug", "--gpu", "L4")
    assert control["fits"]
    sizes = control["phases"]["update"]["bytes"]
    # frozen encoders do not learn: PPO's moments are fewer than those of cloning, and none is larger than the weights
    assert 0 < sizes["optimizer"] < 2 * sizes["weights"]
    whole, small = (
        plan(capsys, "vla-ppo", "--preset", "debug", "--gpu", "L4", "--ppo.micro_batch_size", size)
        for size in ("256", "32")
    )
    kept = [each["phases"]["update"]["bytes"]["activations"] for each in (whole, small)]
    assert kept[1] < 0.2 * kept[0]


def test_an_engine_that_sleeps_leaves_its_memory_to_the_update(capsys):
    words = ("vqa-ppo", "--preset", "debug", "--gpu", "L4", "--sampler", "vllm")
    awake, asleep = (plan(capsys, *words, "--vllm.sleep", sleeps)["phases"] for sleeps in ("false", "true"))
    engine = awake["load"]["bytes"]["engine"]
    assert engine == pytest.approx(0.5 * 24e9, rel=0.1)
    assert awake["update"]["total"] - asleep["update"]["total"] == pytest.approx(engine)
    assert awake["sync"]["bytes"]["engine"] == asleep["sync"]["bytes"]["engine"] == engine


def test_words_that_have_no_plan(capsys):
    assert main(["plan", "world-duel", "--preset", "full"]) == 2
    assert "is too small to need a plan" in capsys.readouterr().err
