"""Compatible parts of another checkpoint are loaded by name, and the report says what came of each tensor."""

import logging
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from transformers import PI0Config, PI0ForConditionalGeneration, SiglipVisionConfig, SiglipVisionModel

from lookact.cli import main as lookact
from lookact.errors import ConfigError, DataError
from lookact.models.world_model.loading import build_world_model, open_tokenizer
from lookact.models.world_model.model import WorldModelSpec
from lookact.models.world_model.pretrained import is_fitted, load_compatible, load_pretrained, own_name
from lookact.models.world_model.vq import VQSpec

TOWER = {"hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
         "image_size": 16, "patch_size": 4}  # fmt: skip
GEMMA = {"model_type": "gemma", "vocab_size": 30, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}  # fmt: skip
SPEC = WorldModelSpec(
    state_size=3, action_size=2, vq=VQSpec(16, 8, 4, (1, 2), 8), state_dim=6, action_dim=5, width=16, layers=2,
    heads=2, memory=6, members=1, chunk=3, foresight=True
)  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A tiny π0, and a SigLIP of its tower's sizes."""
    root = tmp_path_factory.mktemp("pretrained")
    torch.manual_seed(0)
    vlm = {"model_type": "paligemma", "text_config": GEMMA, "projection_dim": 16, "image_token_index": 29}
    vlm["vision_config"] = TOWER | {"model_type": "siglip_vision_model", "projection_dim": 16}
    pi0 = PI0ForConditionalGeneration(
        PI0Config(vlm_config=vlm, dit_config=GEMMA, chunk_size=4, max_state_dim=6, max_action_dim=5)
    )
    pi0.save_pretrained(root / "pi0")
    SiglipVisionModel(SiglipVisionConfig(**TOWER)).save_pretrained(root / "siglip")
    return root, pi0


def make(spec=SPEC, vision="none", **how):
    tokenizer = open_tokenizer("tiny", ["reach the cube"], None)
    return build_world_model(spec, text="tiny", vision=vision, tokenizer=tokenizer, seed=0, **how)


def test_what_fits_of_a_pi0_on_disk_is_loaded_and_the_rest_is_told(folders, caplog):
    root, pi0 = folders
    model = make(vision=str(root / "siglip"))
    before = {name: x.clone() for name, x in model.state_dict().items()}
    with caplog.at_level(logging.DEBUG, "lookact"):
        report = load_pretrained(model, root / "pi0")
    known, state = pi0.state_dict(), model.state_dict()
    tower = {name.split("vision_tower.")[1]: x for name, x in known.items() if "vision_tower." in name}
    assert all(state[f"vision_encoder.encoder.{name}"].equal(x) for name, x in tower.items())
    pairs = {
        "understanding.state.weight": "embed_action_time.state_proj.weight",
        "action_head.output.bias": "action_out_proj.bias",
        "attention.blocks.1.experts.action.q_proj.weight": "model.dit.layers.1.self_attn.q_proj.weight",
        "attention.blocks.0.experts.understanding.o_proj.weight": (
            "model.vlm.language_model.layers.0.self_attn.o_proj.weight"
        ),
    }
    assert all(state[own].equal(known[theirs]) for own, theirs in pairs.items())
    assert set(pairs) <= set(report.matched)
    # the tower, q and o of two experts in two blocks, state and action out
    assert len(report.matched) == len(tower) + 8 + 4
    # one head of keys is shared by two of queries, and the action's time is an input of ours
    told = {own_name(theirs) for theirs in report.other_shape}
    assert told == {"action_head.input.weight"} | {
        f"attention.blocks.{block}.experts.{expert}.{part}_proj.weight"
        for block in (0, 1)
        for expert in ("understanding", "action")
        for part in "kv"
    }
    assert "(8, 16), the model's" in " ".join(report.other_shape.values())
    # the bias of what does not fit stays behind with it
    assert "embed_action_time.action_in_proj.bias" not in report.matched.values()
    assert any("gate_proj" in name for name in report.left_over)
    assert "action_head.queries" in report.fresh
    assert all(state[name].equal(before[name]) for name in (*report.fresh, "vq.encoder.0.weight"))
    assert (
        f"{len(report.matched)} of {len(report.matched) + len(report.other_shape) + len(report.left_over)} tensors"
        in caplog.text
    )
    assert "left over: " in caplog.text


@pytest.mark.parametrize(
    ("theirs", "own"),
    [
        # as F1 writes it: three experts, and a tower behind a wrapper
        ("model.paligemma_with_expert.gemma_wm_expert.model.layers.3.self_attn.v_proj.weight",
         "attention.blocks.3.experts.generation.v_proj.weight"),
        ("model.paligemma_with_expert.gemma_expert.model.layers.0.self_attn.q_proj.weight",
         "attention.blocks.0.experts.action.q_proj.weight"),
        ("model.paligemma_with_expert.paligemma.vision_tower.vision_model.embeddings.patch_embedding.bias",
         "vision_encoder.encoder.embeddings.patch_embedding.bias"),
        ("model.paligemma_with_expert.paligemma.language_model.model.layers.17.self_attn.o_proj.weight",
         "attention.blocks.17.experts.understanding.o_proj.weight"),
        ("model.state_proj.bias", "understanding.state.bias"),
        ("model.action_out_proj.weight", "action_head.output.weight"),
        ("pos_query", "pos_query"),
    ],
)  # fmt: skip
def test_names_of_f1_and_pi0_are_known(theirs, own):
    assert own_name(theirs) == own


def test_a_world_model_of_other_sizes_gives_what_it_has_alike():
    model, other = make(), make(replace(SPEC, memory=9, layers=1, chunk=4))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    report = load_compatible(model, other.state_dict())
    assert {"memory_input.weight", "action_head.queries"} <= set(report.other_shape)
    assert {"attention.blocks.0.experts.action.q_proj.weight", "pos_query", "critic.output.bias"} <= set(report.matched)
    assert any(name.startswith("attention.blocks.1.") for name in report.fresh)
    # what a run fits by itself is never taken
    assert {name for name in report.left_over if is_fitted(name)} == {n for n in other.state_dict() if is_fitted(n)}
    state = model.state_dict()
    assert all(state[own].equal(other.state_dict()[theirs]) for own, theirs in report.matched.items())


def test_a_bias_goes_with_its_weight():
    model = make()
    width = model.understanding["state"].weight.shape
    state = {"state_proj.weight": torch.ones(width[0], width[1] + 1), "state_proj.bias": torch.ones(width[0])}
    report = load_compatible(model, state)
    assert set(report.other_shape) == set(state)
    assert not report.matched
    report = load_compatible(model, state | {"state_proj.weight": torch.ones(width)})
    assert set(report.matched.values()) == set(state)


def test_adapters_stand_beside_what_is_loaded():
    model, other = make(lora_rank=2), make()
    report = load_compatible(model, {name: x + 1 for name, x in other.state_dict().items()})
    name = "attention.blocks.0.experts.action.q_proj"
    assert model.state_dict()[f"{name}.base_layer.weight"].equal(other.state_dict()[f"{name}.weight"] + 1)
    assert all("lora_" in own for own in report.fresh)


def test_what_holds_nothing_that_fits_is_refused(folders, tmp_path):
    with pytest.raises(DataError, match="holds no safetensors"):
        load_pretrained(make(), tmp_path)
    save_file({"wte.weight": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match=r"nothing that the model has in the same shape \(0 of 1 tensors loaded"):
        load_pretrained(make(), tmp_path)


@pytest.mark.slow
def test_a_run_begins_with_it_once_and_a_resumed_one_goes_on(folders, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pi0, words = folders[0] / "pi0", ["train", "world-duel", "--preset", "debug", "--phase", "task"]
    words += ["--env.name", "memory_curtain", "--env.steps_per_episode", "6", "--model.width", "16"]
    words += ["--model.pretrained", str(pi0), "--task_phase.iterations", "0", "--name", "from-pi0"]
    assert lookact([*words, "--task_phase.bc.iterations", "1"]) == 0
    log = tmp_path / "runs/world-duel/from-pi0/training.log"
    # state and action are wider here, of two blocks there is one
    assert log.read_text().count(": 4 of 84 tensors loaded; ") == 1
    assert "loaded paligemma_with_expert.gemma_expert.model.layers.0.self_attn.q_proj.weight" in log.read_text()
    assert lookact([*words, "--task_phase.bc.iterations", "2", "--auto-resume"]) == 0
    assert log.read_text().count("pretrained weights of") == 1
    capsys.readouterr()
    assert lookact([*words, "--model.pretrained", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
