"""The sampler of vqa-ppo. What needs the real vLLM is run by `make test-vllm`."""

import importlib.util
import json
import os
import signal
from dataclasses import replace

import pytest

from lookact.algorithms import rollouts
from lookact.algorithms.rollouts import open_sampler
from lookact.config import to_mapping
from lookact.errors import ConfigError, TokenMismatch
from lookact.models.vlm.loading import write_snapshot
from lookact.recipes.ppo.evaluate import open_policy
from lookact.recipes.ppo.train import main
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import VllmSpec
from lookact.rollout.samplers.vllm_server import VllmServer
from lookact.training.run import open_run

HAS_VLLM = importlib.util.find_spec("vllm") is not None


def needs_vllm(test):
    absent = pytest.mark.skipif(not HAS_VLLM, reason="vLLM is absent: `make test-vllm` runs this")
    return pytest.mark.vllm(pytest.mark.slow(absent(test)))


@pytest.fixture
def run(vqa_config, tmp_path):
    with open_run(tmp_path / "run", to_mapping(vqa_config), tensorboard=False) as opened:
        yield opened


@pytest.fixture
def chat(vqa_config, vqa_model):
    return open_policy(vqa_config, vqa_model)


def opened(chat, cfg, run, engine="hf"):
    return open_sampler(
        chat, engine, cfg.sampling, system="", vllm=cfg.vllm, folder=run.folder / "engine", max_logprob_gap=1e-3,
        closing=run.closing,
    )  # fmt: skip


def test_the_learners_own_engine_needs_only_its_version(chat, vqa_config, run):
    actor, sync = opened(chat, vqa_config, run)
    assert isinstance(actor, HFSampler)
    assert sync(4) == {}
    assert actor.version == 4


@pytest.mark.parametrize("engine", ["vllm", "vllm-server"])
def test_an_engine_with_another_tokenizer_is_refused_before_it_starts(chat, vqa_config, run, monkeypatch, engine):
    def tampered(chat, state, folder):
        path = write_snapshot(chat, state, folder) / "tokenizer.json"
        content = json.loads(path.read_text())
        vocabulary = content["model"]["vocab"]
        vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
        path.write_text(json.dumps(content))
        return folder

    monkeypatch.setattr(rollouts, "write_snapshot", tampered)
    with pytest.raises(TokenMismatch, match="vocabulary: 2 ids differ: id"):
        opened(chat, vqa_config, run, engine)


@pytest.mark.parametrize("engine", ["vllm", "vllm-server"])
@pytest.mark.skipif(HAS_VLLM, reason="vLLM is installed")
def test_without_vllm_the_remedy_is_named(chat, vqa_config, run, engine):
    with pytest.raises(ConfigError, match=r"pip install 'lookact\[vllm\]'"):
        opened(chat, vqa_config, run, engine)


def test_several_processes_can_not_share_an_engine_in_one_of_them(chat, vqa_config, run, monkeypatch):
    monkeypatch.setattr(rollouts, "world_size", lambda: 2)
    with pytest.raises(ConfigError, match="serves one process, this run has 2: set --sampler vllm-server"):
        opened(chat, vqa_config, run, "vllm")


def with_engine(cfg, engine):
    """Three steps, the actor learning in two, on an engine of this kind."""
    return replace(
        cfg,
        sampler=engine,
        vllm=VllmSpec(max_num_seqs=8, kv_cache_memory=0.25, start_timeout_s=1800, reply_timeout_s=900),
    )


def told(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@needs_vllm
@pytest.mark.parametrize("engine", ["vllm", "vllm-server"])
def test_a_run_trains_through_the_engine(vqa_config, train, tmp_path, engine):
    train(main, with_engine(vqa_config, engine))
    steps = told(tmp_path / "run")
    assert [step["step"] for step in steps] == [1, 2, 3]
    for step in steps:
        assert step["policy/mismatch_gap_max"] < 1e-3
        assert step["policy/sync_gap"] < 1e-3
        assert step["rollout/error_rate"] == 0
    # all is new to the engine at first; in the critic's own time nothing moves; then the actor learns
    assert [step["policy/sync_changed"] > 0 for step in steps] == [True, False, True]


@needs_vllm
def test_training_goes_on_after_the_server_was_killed_in_the_middle_of_a_rollout(
    vqa_config, train, tmp_path, monkeypatch
):
    asked, killed = VllmServer._ask, []

    def kill_once(server, prompt, params):
        # in the first rollout's second turn: the probe asks two by two, a rollout six at a time
        if not killed and len(prompt.images) > 1 and server.version == 0 and len(server_asks) > 12:
            killed.append(server.process.pid)
            os.killpg(server.process.pid, signal.SIGKILL)
        server_asks.append(len(prompt.images))
        return asked(server, prompt, params)

    server_asks: list[int] = []
    monkeypatch.setattr(VllmServer, "_ask", kill_once)
    train(main, with_engine(vqa_config, "vllm-server"))
    assert len(killed) == 1
    steps = told(tmp_path / "run")
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert [step["rollout/error_rate"] for step in steps] == [0, 0, 0]
    assert all(step["policy/mismatch_gap_max"] < 1e-3 for step in steps)
