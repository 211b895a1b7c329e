"""Weights on their way to an engine; the engine here is a copy of the model, vLLM has its own file."""

import pytest
import torch

from lookact.errors import StaleWeights
from lookact.models.vlm.loading import merged_state
from lookact.rollout.samplers.settings import Sampling
from lookact.rollout.samplers.vllm import VllmSampler
from lookact.rollout.weight_sync import WeightSync, compare_norms, norms_of, probe_gap

SAMPLING = Sampling(max_tokens=6, min_action_tokens=1)


@pytest.fixture
def actor(chat, copy_engine):
    return VllmSampler(chat, copy_engine, SAMPLING)


def learn(chat, scale=0.05):
    """Moves the language model's weights and leaves the vision tower's as they are."""
    with torch.no_grad():
        for weight in chat.causal.model.language_model.parameters():
            weight.add_(scale * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))


@pytest.mark.slow
def test_the_engine_follows_the_learner_from_version_to_version(chat, actor):
    sync = WeightSync(actor, limit=1e-3)
    assert sync.push(merged_state(chat), 0)["policy/sync_changed"] == 1
    for version in (1, 2):
        learn(chat)
        assert probe_gap(actor) > 1e-3
        report = sync.push(merged_state(chat), version)
        assert report["policy/sync_gap"] < 1e-4
        assert 0 < report["policy/sync_changed"] < 1
        assert actor.version == version
    assert sync.push(merged_state(chat), 3)["policy/sync_changed"] == 0


def test_an_engine_that_only_says_it_loaded_is_found_out(chat, actor, copy_engine):
    sync = WeightSync(actor, limit=1e-3)
    sync.push(merged_state(chat), 0)

    def pretend(state, version):
        copy_engine.version = version
        return norms_of(state)

    copy_engine.load = pretend
    learn(chat)
    with pytest.raises(StaleWeights, match=r"at version 1 engine and learner differ by \d"):
        sync.push(merged_state(chat), 1)


def test_an_engine_that_keeps_its_old_version_is_found_out(chat, actor, copy_engine):
    copy_engine.load = lambda state, version: norms_of(state)
    with pytest.raises(StaleWeights, match="replied with weights 0, the learner is at 5"):
        WeightSync(actor, limit=1e-3).push(merged_state(chat), 5)


def test_tampered_weights_are_refused_by_name(chat, actor, copy_engine):
    load, name = copy_engine.load, "model.language_model.norm.weight"

    def tamper(state, version):
        return load({**state, name: 2 * state[name]}, version)

    copy_engine.load = tamper
    with pytest.raises(StaleWeights, match=rf"other weights than version 1: {name} has norm .* \(1 of \d+ differ\)"):
        WeightSync(actor, limit=1e-3).push(merged_state(chat), 1)


def test_norms_are_compared_tensor_by_tensor():
    sent = norms_of({"a": torch.tensor([3.0, 4.0]), "b": torch.ones(4), "c": torch.zeros(2)})
    assert sent == {"a": 5.0, "b": 2.0, "c": 0.0}
    assert compare_norms(sent, dict(sent)) == []
    assert compare_norms(sent, {"a": 5.1, "b": -1.0, "d": 1.0}) == [
        "a has norm 5.1, the learner's has 5",
        "b is not what the engine's layers hold",
        "c was never read",
        "d was read but not sent",
    ]


def test_the_probe_leaves_the_learner_in_the_mode_it_was_in(chat, actor):
    chat.train()
    assert probe_gap(actor) < 1e-4
    assert chat.training
