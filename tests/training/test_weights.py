"""Weights in Hugging Face's own layout, and the state of random streams, read back."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from lookact.errors import DataError
from lookact.training.checkpoint import load_checkpoint, save_checkpoint
from lookact.training.weights import read_snapshot, rng_state, set_rng_state


@pytest.mark.slow
def test_a_transformers_model_is_saved_in_its_own_layout_and_restored(tmp_path):
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    model, other = BertForMaskedLM(config), BertForMaskedLM(config)
    path = save_checkpoint(tmp_path, 1, weights={"model": model}, state={}, metrics={}, config={})
    assert {"config.json", "model.safetensors", "training_state.pt", "metrics.json"} <= {p.name for p in path.iterdir()}
    load_checkpoint(path, weights={"model": other})
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name

    wider = BertForMaskedLM(BertConfig(**{**config.to_dict(), "intermediate_size": 16}))
    with pytest.raises(DataError, match="another model"):
        load_checkpoint(path, weights={"model": wider})


@pytest.mark.slow
def test_an_adapter_is_saved_by_itself_and_restored(tmp_path):
    from peft import LoraConfig, get_peft_model

    def adapted(rank: int) -> nn.Module:
        torch.manual_seed(0)
        model = get_peft_model(nn.Sequential(nn.Linear(4, 4)), LoraConfig(r=rank, target_modules=["0"]))
        return model

    model, other = adapted(2), adapted(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.fill_(0.5)
    path = save_checkpoint(tmp_path, 1, weights={"peft_adapter": model}, state={}, metrics={}, config={})
    assert (path / "peft_adapter/adapter_model.safetensors").exists()
    assert not (path / "model.safetensors").exists()
    load_checkpoint(path, weights={"peft_adapter": other})
    x = torch.randn(2, 4)
    assert torch.equal(model(x), other(x))
    with pytest.raises(DataError, match="has shape"):
        load_checkpoint(path, weights={"peft_adapter": adapted(3)})


def draw() -> list[float]:
    """From each global stream; gauss and normal keep a second number back, which is state too."""
    numpy_draw = float(np.random.standard_normal())  # noqa: NPY002
    return [random.gauss(0, 1), random.random(), numpy_draw, float(torch.randn(()))]


def test_global_streams_go_on_where_they_were(tmp_path):
    draw()
    torch.save({"stateful": [], "items": {}, "random": rng_state()}, tmp_path / "state.pt")
    expected = [draw() for _ in range(3)]
    assert [draw() for _ in range(3)] != expected
    set_rng_state(read_snapshot(tmp_path / "state.pt")["random"])
    assert [draw() for _ in range(3)] == expected
