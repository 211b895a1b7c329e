import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from lookact.algorithms import vlm as chat_model
from lookact.algorithms.vlm import open_chat, template_of
from lookact.algorithms.vlm_settings import Model
from lookact.models.vlm.loading import load_chat
from lookact.models.vlm.reference import AdapterReference, CopyReference, open_reference

SMALL = Model(hidden=64, layers=1, vision_hidden=32, vision_depth=1)


def opened(folder, model=SMALL, corpus=lambda: ["Find the bed."] * 4, seed=0):
    return open_chat(model, folder, corpus=corpus, image_size=64, seed=seed)


def test_a_tiny_model_is_made_once_and_taken_from_its_folder_after(tmp_path):
    first = opened(tmp_path / "model")
    again = opened(tmp_path / "model", corpus=lambda: pytest.fail("made a second time"), seed=1)
    assert torch.equal(first.output_weight, again.output_weight)
    assert not torch.equal(first.output_weight, opened(tmp_path / "other", seed=1).output_weight)


def test_a_model_is_opened_by_the_name_of_its_folder(tmp_path, tiny_folder):
    chat = opened(tmp_path / "model", replace(SMALL, source=str(tiny_folder), lora_rank=2))
    assert not (tmp_path / "model").exists()
    assert chat.model is not chat.causal
    assert torch.equal(chat.output_weight, load_chat(tiny_folder).output_weight)


def test_adapters_are_drawn_from_the_seed_alone(tmp_path, tiny_folder):
    adapted = replace(SMALL, source=str(tiny_folder), lora_rank=2)
    states = []
    for seed, noise in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(noise)
        chat = opened(tmp_path, adapted, seed=seed)
        states.append(torch.cat([p.flatten() for p in chat.parameters() if p.requires_grad]))
        assert torch.initial_seed() == noise
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def test_a_model_half_written_when_the_run_was_killed_is_made_anew(tmp_path, monkeypatch):
    make = chat_model.make_tiny

    def die(folder, **how):
        make(folder, **how)
        (folder / "model.safetensors").unlink()
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(chat_model, "make_tiny", die)
            opened(tmp_path / "model")
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert not (tmp_path / "model").exists()
    assert torch.equal(opened(tmp_path / "model").output_weight, opened(tmp_path / "other").output_weight)


def test_a_script_writes_the_tokens_of_a_picture(chat):
    script = template_of(chat, system="Walk.")
    picture = np.zeros((64, 96, 3), np.uint8)
    # one token per 32x32 pixels
    assert script.encode("<|image_pad|>!", [picture]).tolist() == [chat.image_pad_id] * 6 + chat.encode_text("!")
    assert (script.end_id, script.system) == (chat.end_id, "Walk.")


def test_references_are_of_the_kind_that_was_asked_for(chat, tiny_folder):
    adapted = opened(None, Model(source=str(tiny_folder), lora_rank=2))
    assert open_reference(chat, "none") is None
    assert isinstance(open_reference(chat, "frozen"), CopyReference)
    assert isinstance(open_reference(adapted, "frozen"), AdapterReference)
    assert isinstance(open_reference(adapted, "ema"), CopyReference)
