import json

import pytest
import torch
from safetensors.torch import load_file

from lookact.errors import ConfigError
from lookact.models.vla.encoders import TextEncoder, TextSpec, open_bert, set_finetune, tiny_bert, train_wordpiece
from lookact.models.world_model.loading import Freeze, add_adapters, freeze, owner_of, save_adapter
from lookact.models.world_model.model import WorldModel, WorldModelSpec
from lookact.models.world_model.vq import VQSpec


def make():
    text = TextSpec(hidden=32, vocabulary=256, length=8, finetune="frozen")
    tokenizer = train_wordpiece(["reach the cube"], text)
    config = tiny_bert(hidden=32, layers=1, vocabulary=len(tokenizer), length=8)
    bert = set_finetune(open_bert("tiny", config, 0), "frozen", rank=0, seed=0)
    return WorldModel(
        WorldModelSpec(3, 2, VQSpec(16, 8, 4, (1, 2), 8), width=16, heads=2, layers=1),
        TextEncoder(text, bert, tokenizer),
    )


def learning(world_model):
    return {owner_of(name) for name, parameter in world_model.named_parameters() if parameter.requires_grad}


@pytest.mark.parametrize(
    ("how", "owners"),
    [
        (Freeze(), {"vision", "understanding", "generation", "action"}),
        (Freeze(vision_encoder=True), {"understanding", "generation", "action"}),
        (Freeze(gen_expert=True), {"vision", "understanding", "action"}),
        (Freeze(act_expert_only=True), {"action"}),
        (Freeze(gen_expert_only=True), {"generation"}),
    ],
)
def test_each_flag_leaves_its_parts_to_learn(how, owners):
    world_model = make()
    freeze(world_model, how)
    assert learning(world_model) == owners


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("attention.blocks.0.experts.action.q_proj.weight", "action"),
        ("attention.norms.understanding.bias", "understanding"),
        ("memory.gru.weight_hh_l0", "generation"),
        ("memory_input.weight", "generation"),
        ("pos_query", "generation"),
        ("pos_context", "generation"),
        ("critic.output.weight", "action"),
        ("vq.decoder.0.weight", "vq"),
    ],
)
def test_every_parameter_has_an_owner(name, owner):
    assert name in dict(make().named_parameters())
    assert owner_of(name) == owner


def test_flags_that_leave_nothing_are_refused():
    with pytest.raises(ConfigError, match="train_gen_expert_only"):
        Freeze(gen_expert=True, gen_expert_only=True)


def test_adapters_change_nothing_and_learn_alone_in_attention(tmp_path):
    plain, world_model = make(), make()
    world_model.load_state_dict(plain.state_dict())
    add_adapters(world_model, rank=2, alpha=4, seed=0)
    freeze(world_model, Freeze())
    x = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(3, 3, dtype=torch.bool)
    torch.testing.assert_close(world_model.attention([("action", x)], mask), plain.attention([("action", x)], mask))
    inside = [
        name for name, p in world_model.named_parameters() if p.requires_grad and name.startswith("attention.blocks")
    ]
    assert len(inside) == 3 * 2 * 2
    assert all("lora_" in name for name in inside)
    save_adapter(world_model, 2, 4, tmp_path)
    assert len(load_file(tmp_path / "adapter_model.safetensors")) == len(inside)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["r"] == 2


def test_adapters_are_drawn_from_the_seed():
    models = [make(), make(), make()]
    for world_model, seed in zip(models, (0, 0, 1)):
        add_adapters(world_model, rank=2, alpha=4, seed=seed)
    name = "attention.blocks.0.experts.action.q_proj.lora_A.default.weight"
    first, same, other = (dict(world_model.named_parameters())[name] for world_model in models)
    assert first.equal(same)
    assert not first.equal(other)
