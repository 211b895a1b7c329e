"""A small adapter in bfloat16: what is added before the rounding counts, what is added after it is lost."""

import copy

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora.layer import Linear
from torch import nn

from lookact.models.vlm.adapters import SummedLinear, round_once
from lookact.models.vlm.loading import LoraSpec, load_chat, save_chat

INPUT, OUTPUT, TOKENS = 64, 48, 4000


def adapted(dtype, *, size=1e-4, bias=False, dropout=0.0):
    """A linear with an adapter, as PEFT makes it, whose part is about `size` of outputs of 1."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(INPUT, OUTPUT, bias=bias, dtype=dtype))
    nn.init.normal_(model[0].weight, std=INPUT**-0.5)
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=["0"], lora_dropout=dropout))
    nn.init.normal_(layer_of(model).lora_B["default"].weight, std=size)
    return model


def layer_of(model):
    return model.get_base_model()[0]


def inputs(dtype):
    return torch.randn(TOKENS, INPUT, generator=torch.Generator().manual_seed(1)).to(dtype)


def made_change(model, seen):
    """The share of the adapter's part that the output changes by, as the slope over all outputs."""
    layer = layer_of(model)
    with torch.no_grad(), model.disable_adapter():
        before = model(seen).double()
    with torch.no_grad():
        change = model(seen).double() - before
        part = layer.lora_B["default"](layer.lora_A["default"](seen.float())).double() * layer.scaling["default"]
    return float((change * part).sum() / (part * part).sum())


@pytest.mark.parametrize("bias", [False, True])
def test_a_part_below_the_last_digit_is_made_on_average(bias):
    model, seen = adapted(torch.bfloat16, bias=bias), inputs(torch.bfloat16)
    assert made_change(model, seen) < 0.4
    assert made_change(round_once(model), seen) == pytest.approx(1.0, abs=0.05)


def test_in_float32_nothing_changes():
    model, seen = adapted(torch.float32, size=0.1), inputs(torch.float32)
    stock = model(seen)
    assert torch.equal(round_once(model)(seen), stock)
    assert type(layer_of(model)) is SummedLinear


def test_gradients_are_pefts():
    stock = adapted(torch.bfloat16, size=0.1, bias=True)
    ours = round_once(copy.deepcopy(stock))
    found = []
    for model in (stock, ours):
        seen = inputs(torch.bfloat16).view(40, 100, INPUT).requires_grad_()
        model(seen).float().square().mean().backward()
        learned = [weight.grad for weight in model.parameters() if weight.requires_grad]
        found.append([seen.grad, *learned])
    for one, other in zip(*found):
        assert one.dtype == other.dtype
        assert torch.dist(one.float(), other.float()) < 0.01 * one.float().norm()


def test_switched_off_it_is_the_base():
    model, seen = round_once(adapted(torch.bfloat16, size=0.1)), inputs(torch.bfloat16)
    base = layer_of(model).get_base_layer()(seen)
    assert not torch.equal(model(seen), base)
    with model.disable_adapter():
        assert torch.equal(model(seen), base)


def test_dropout_drops():
    model, seen = round_once(adapted(torch.bfloat16, size=0.1, dropout=0.5)), inputs(torch.bfloat16)
    assert not torch.equal(model.train()(seen), model(seen))
    assert torch.equal(model.eval()(seen), model(seen))


def test_every_policy_with_adapters_has_them(tiny_folder, tmp_path):
    chat = load_chat(tiny_folder, dtype="bfloat16", lora=LoraSpec(rank=2))
    again = load_chat(save_chat(chat, tmp_path / "saved"), dtype="bfloat16")
    for policy in (chat, again, copy.deepcopy(chat)):
        kinds = {type(module) for module in policy.modules() if isinstance(module, Linear)}
        assert kinds == {SummedLinear}
