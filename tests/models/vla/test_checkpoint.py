import pytest
import torch
from safetensors.torch import save_file

from lookact.batch import ControlInputs
from lookact.errors import DataError
from lookact.models.vla.checkpoint import SPEC, WEIGHTS, load_vla, make_vla, save_encoders
from lookact.models.vla.encoders import (
    TextSpec,
    VisionSpec,
    open_bert,
    open_dinov2,
    tiny_bert,
    tiny_dinov2,
    train_wordpiece,
)
from lookact.models.vla.policy import VLA, PolicySpec

CORPUS = ["put the red cube on the blue stand", "lift the green brick onto the red stand"]
SMALL = PolicySpec(("head",), state_size=3, action_size=2, width=16, layers=1, heads=2)
VISION, TEXT = VisionSpec(image_size=16, patch=8, hidden=32, layers=1, pool_queries=2), TextSpec(hidden=32, length=12)


def steps(vla: VLA) -> ControlInputs:
    frames = torch.arange(2 * 16 * 16 * 3).remainder(255).to(torch.uint8).view(2, 16, 16, 3)
    return ControlInputs(
        torch.zeros(2, 2), torch.ones(2, 3), {"head": frames}, vla.tokenize(CORPUS), torch.zeros(2, 5, 2)
    )


def save(vla: VLA, folder):
    folder.mkdir()
    save_encoders(vla, folder)
    save_file(vla.state_dict(), folder / WEIGHTS)
    return folder


@pytest.mark.parametrize("finetune", ["full", "lora", "frozen"])
def test_a_policy_comes_back_as_it_was(tmp_path, finetune):
    eyes, words = VisionSpec(**{**vars(VISION), "finetune": finetune}), TextSpec(**{**vars(TEXT), "finetune": finetune})
    vla = make_vla(SMALL, eyes, words, corpus=CORPUS, seed=3)
    vla.set_statistics(torch.ones(3), torch.full((3,), 2.0))
    back = load_vla(save(vla, tmp_path / "policy"))
    assert torch.equal(back(steps(back)).mean, vla(steps(vla)).mean)
    assert back.spec == vla.spec
    assert [p.requires_grad for p in back.parameters()] == [p.requires_grad for p in vla.parameters()]


def test_pretrained_encoders_are_needed_only_once(tmp_path):
    tokenizer = train_wordpiece(CORPUS, TEXT)
    bert = tiny_bert(hidden=32, layers=2, vocabulary=len(tokenizer), length=12)
    open_bert("tiny", bert, 7).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    dino = tiny_dinov2(hidden=64, layers=1, image_size=28, patch=14)
    open_dinov2("tiny", dino, 7).save_pretrained(tmp_path / "dino")
    eyes = VisionSpec(source=str(tmp_path / "dino"), image_size=28, pool_queries=2, finetune="frozen")
    words = TextSpec(source=str(tmp_path / "bert"), length=12, finetune="lora", lora_rank=2)
    vla = make_vla(SMALL, eyes, words, corpus=[], seed=0)
    assert vla.vision_encoder.width == 64
    folder = save(vla, tmp_path / "policy")
    for gone in ("bert", "dino"):
        (tmp_path / gone).rename(tmp_path / f"{gone}-gone")
    back = load_vla(folder)
    assert torch.equal(back(steps(back)).mean, vla(steps(vla)).mean)


def test_what_is_no_policy_is_refused(tmp_path):
    with pytest.raises(DataError, match="no vla-ppo checkpoint"):
        load_vla(tmp_path)
    folder = save(make_vla(SMALL, VISION, TEXT, corpus=CORPUS, seed=0), tmp_path / "policy")
    weights = folder / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(DataError, match="does not hold a whole policy") as error:
        load_vla(folder)
    assert "\n" not in str(error.value)
    (folder / SPEC).write_text("{}")
    with pytest.raises(DataError, match="does not hold a whole policy"):
        load_vla(folder)
