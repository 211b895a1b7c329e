"""A pretrained vision encoder of the understanding expert, from tiny folders that `save_pretrained` wrote."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    BertConfig,
    BertModel,
    Dinov2Config,
    Dinov2Model,
    SiglipConfig,
    SiglipModel,
    SiglipVisionConfig,
    SiglipVisionModel,
)

from lookact.algorithms.world_model import encode_sequences, inputs_at, run_memory
from lookact.batch import ControlInputs
from lookact.cli import main as lookact
from lookact.data.sequences import TokenSequences
from lookact.errors import ConfigError, DataError
from lookact.models.world_model.explorer import Explorer
from lookact.models.world_model.loading import Freeze, build_world_model, freeze, open_tokenizer, owner_of
from lookact.models.world_model.model import WorldModelSpec
from lookact.models.world_model.vision import PretrainedVision, open_vision
from lookact.models.world_model.vq import VQSpec

SIZES = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 24, "patch_size": 4}
SIGLIP = SIZES | {"intermediate_size": 16}
SPEC = WorldModelSpec(
    state_size=3, action_size=2, vq=VQSpec(32, 8, 4, (1, 2, 4), 8), state_dim=6, action_dim=5, width=16, layers=1,
    heads=2, memory=6, members=1, chunk=3, foresight=True
)  # fmt: skip
ROWS, STEPS = 3, 4


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny checkpoints of each kind."""
    root = tmp_path_factory.mktemp("encoders")
    text = {"vocab_size": 99, "hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
    torch.manual_seed(0)
    models = {
        "siglip_vision": SiglipVisionModel(SiglipVisionConfig(**SIGLIP)),
        "siglip": SiglipModel(SiglipConfig(vision_config=SIGLIP, text_config=text)),
        "dinov2": Dinov2Model(Dinov2Config(**SIZES)),
        "bert": BertModel(BertConfig(vocab_size=9, **{k: SIZES[k] for k in list(SIZES)[:3]}, intermediate_size=8)),
    }
    for name, model in models.items():
        model.eval().save_pretrained(root / name)
    return root, models


@pytest.mark.parametrize("name", ["siglip_vision", "siglip", "dinov2"])
def test_features_are_the_encoders_own_patches_averaged_by_cell(folders, name):
    root, models = folders
    vision = open_vision(str(root / name), side=2)
    assert (vision.width, vision.size) == (12, 24)
    planes = torch.rand(2, 3, 24, 24, generator=torch.Generator().manual_seed(1)) * 2 - 1
    found = vision(planes)
    assert found.shape == (2, 4, 12)
    # by hand: colours as each was trained with, no class token, nine of 36 patches a cell
    if name == "dinov2":
        mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        pixels = ((planes + 1) / 2 - mean[:, None, None]) / deviation[:, None, None]
        states = models[name](pixel_values=pixels).last_hidden_state[:, 1:]
    else:
        own = models[name] if name == "siglip_vision" else models[name].vision_model
        states = own(pixel_values=planes).last_hidden_state
    first = states.reshape(2, 6, 6, 12)[:, :3, 3:].mean(dim=(1, 2))
    torch.testing.assert_close(found[:, 1], first, rtol=1e-4, atol=1e-5)
    # frames of another size are brought to its own
    assert vision(planes[:, :, :16, :16]).shape == (2, 4, 12)


def test_another_model_and_a_folder_that_is_not_there_are_refused(folders, capsys):
    root, _ = folders
    assert open_vision("none", side=2) is None
    with pytest.raises(ConfigError, match="is a bert model: choose a SigLIP or DINOv2 checkpoint"):
        open_vision(str(root / "bert"), side=2)
    with pytest.raises(DataError, match="give 'none', a folder that exists, or a name on the Hub"):
        open_vision("./nowhere", side=2)
    for source in (str(root / "bert"), "./nowhere"):
        assert lookact(["train", "world-duel", "--preset", "debug", "--model.vision", source]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert source in error


def make(vision):
    tokenizer = open_tokenizer("tiny", ["reach the cube"], None)
    model = build_world_model(SPEC, text="tiny", vision=vision, tokenizer=tokenizer, seed=0)
    model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.action_head.output.weight.mul_(100)
    return model


def sequences(model):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(8, (2, ROWS, STEPS + 1, 21), generator=generator).to(torch.int16)
    return TokenSequences(
        wrist=ids[0],
        head=ids[1],
        head_seen=torch.tensor([True, True, False]),
        state=torch.rand(ROWS, STEPS + 1, 3, generator=generator),
        actions=2 * torch.rand(ROWS, STEPS, 2, generator=generator) - 1,
        text_ids=model.tokenize(["reach the cube"] * ROWS),
        mask=torch.ones(ROWS, STEPS, dtype=torch.bool),
    )


@pytest.mark.parametrize("name", ["siglip", "dinov2"])
def test_the_understanding_expert_is_given_what_it_sees_in_the_decoded_frames(folders, name):
    model = make(str(folders[0] / name))
    assert owner_of("vision_encoder.encoder.layernorm.weight") == "vision_encoder"
    freeze(model, Freeze())
    assert not any(x.requires_grad for x in model.vision_encoder.parameters())
    model.train()
    assert not model.vision_encoder.encoder.training
    made = sequences(model)
    encoded, times = encode_sequences(model, made), torch.tensor([2])
    inputs, action = inputs_at(model, encoded, times, run_memory(model, encoded)[:, times], stride=1)
    assert inputs.vision.shape == (ROWS, 2, 4, 12)
    for camera, ids in enumerate((made.wrist, made.head)):
        planes = model.vq.decoder(model.vq.features(ids[:, 2].long()))
        torch.testing.assert_close(inputs.vision[:, camera], model.vision_encoder(planes))
    logits = model.predict(inputs, action, encoded.ids[:, 3])
    # made on the spot where it is not given, as in imagination
    torch.testing.assert_close(model.predict(replace(inputs, vision=None), action, encoded.ids[:, 3]), logits)
    other = model.predict(replace(inputs, vision=inputs.vision + 1), action, encoded.ids[:, 3])
    assert not torch.allclose(other, logits)
    # the head camera that is not there is not seen
    hidden = inputs.vision.clone()
    hidden[2, 1] += 1
    assert model.predict(replace(inputs, vision=hidden), action, encoded.ids[:, 3])[:, 2].equal(logits[:, 2])
    model.zero_grad()
    logits.sum().backward()
    assert model.vision.weight.grad.abs().max() > 0


@pytest.mark.parametrize("head", ["gaussian", "flow"])
def test_an_explorer_acts_by_it(folders, head):
    tokenizer = open_tokenizer("tiny", ["reach the cube"], None)
    spec, source = replace(SPEC, action_head=head), str(folders[0] / "siglip")
    model = build_world_model(spec, text="tiny", vision=source, tokenizer=tokenizer, seed=0)
    assert isinstance(model.vision_encoder, PretrainedVision)
    explorer, made = Explorer(model), sequences(model)
    noise = torch.zeros(ROWS, explorer.spec.sample_size)
    first = ControlInputs(
        actions=noise,
        state=made.state[:, 0],
        images={"wrist": made.wrist[:, 0].long()},
        text_ids=made.text_ids,
        history=torch.zeros(ROWS, 3, 2),
        carry=explorer.start_carry(ROWS),
    )
    drawn, output = explorer.sample(first, noise)
    torch.testing.assert_close(explorer(replace(first, actions=drawn)).mean, output.mean, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_run_learns_with_it_and_is_evaluated(folders, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["train", "world-duel", "--preset", "debug", "--phase", "task", "--env.name", "memory_curtain"]
    words += ["--env.steps_per_episode", "6", "--model.vision", str(folders[0] / "dinov2"), "--name", "seen", "--json"]
    assert lookact(words) == 0
    assert {"clone", "reinforce"} <= json.loads(capsys.readouterr().out).keys()
    run = tmp_path / "runs/world-duel/seen"
    saved = load_file(run / "checkpoint-3/model.safetensors")
    own = folders[1]["dinov2"].state_dict()
    assert all(saved[f"vision_encoder.encoder.{name}"].equal(x) for name, x in own.items())
    assert lookact(["eval", str(run / "checkpoint-3"), "--episodes", "2"]) == 0
