from pathlib import Path

import pytest
import torch

from lookact.errors import ConfigError
from lookact.models.vlm.loading import LoraSpec, load_chat
from lookact.models.vlm.policy import ChatVLM
from lookact.models.vlm.reference import AdapterReference, CopyReference, NoReference, make_reference


def move(chat: ChatVLM, by: float) -> None:
    with torch.no_grad():
        for parameter in chat.parameters():
            if parameter.requires_grad:
                parameter.add_(by)


def test_a_copy_stays_where_it_was(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [1])
    before = chat.evaluate(inputs).logprobs
    reference = make_reference(chat)
    assert isinstance(reference, CopyReference)
    move(chat, 0.05)
    scores = reference.evaluate(inputs).logprobs
    assert torch.equal(scores, before)
    assert not scores.requires_grad
    assert not torch.allclose(chat.evaluate(inputs).logprobs, before)
    assert reference.chat.tokenizer is chat.tokenizer


def test_the_average_moves_by_one_minus_decay(chat: ChatVLM) -> None:
    reference = CopyReference(chat)
    old = reference.chat.output_weight.clone()
    move(chat, 1.0)
    reference.update(chat, decay=0.9)
    torch.testing.assert_close(reference.chat.output_weight, old + 0.1)
    reference.update(chat, decay=0.0)
    assert torch.equal(reference.chat.output_weight, chat.output_weight)
    with pytest.raises(ConfigError, match=r"decay 1\.5"):
        reference.update(chat, decay=1.5)


def test_a_copy_comes_back_from_its_state(chat: ChatVLM, tiny_folder: Path, conversations) -> None:
    reference = CopyReference(chat)
    move(chat, 0.05)
    reference.update(chat, decay=0.5)
    again = CopyReference(load_chat(tiny_folder))
    again.load_state_dict(reference.state_dict())
    inputs = conversations(chat, [1])
    assert torch.equal(again.evaluate(inputs).logprobs, reference.evaluate(inputs).logprobs)


def test_fresh_adapters_give_the_base_as_reference(tiny_folder: Path, conversations) -> None:
    base, chat = load_chat(tiny_folder), load_chat(tiny_folder, lora=LoraSpec(rank=2))
    reference = make_reference(chat)
    assert isinstance(reference, AdapterReference)
    move(chat, 0.1)
    inputs = conversations(chat, [1])
    assert torch.equal(reference.evaluate(inputs).logprobs, base.evaluate(inputs).logprobs)
    assert not torch.allclose(chat.evaluate(inputs).logprobs, base.evaluate(inputs).logprobs)


def test_trained_adapters_are_the_reference_and_not_the_base(tiny_folder: Path, conversations) -> None:
    base, chat = load_chat(tiny_folder), load_chat(tiny_folder, lora=LoraSpec(rank=2))
    move(chat, 0.1)
    inputs = conversations(chat, [1])
    trained = chat.evaluate(inputs).logprobs.detach()
    reference = make_reference(chat)
    move(chat, 0.1)
    assert torch.equal(reference.evaluate(inputs).logprobs, trained)
    assert not torch.allclose(trained, base.evaluate(inputs).logprobs)
    again = AdapterReference(load_chat(tiny_folder, lora=LoraSpec(rank=2)))
    again.load_state_dict(reference.state_dict())
    assert torch.equal(again.evaluate(inputs).logprobs, trained)
    with pytest.raises(ConfigError, match="other adapters"):
        again.load_state_dict({})


def test_asking_the_reference_leaves_the_policys_gradient_alone(tiny_folder: Path, conversations) -> None:
    chat = load_chat(tiny_folder, lora=LoraSpec(rank=2))
    move(chat, 0.1)
    inputs = conversations(chat, [1])
    reference = make_reference(chat)
    move(chat, 0.1)
    gradients = []
    for ask in (False, True):
        chat.zero_grad()
        scores = chat.evaluate(inputs).logprobs
        if ask:
            reference.evaluate(inputs)
        scores.sum().backward()
        gradients.append([p.grad.clone() for p in chat.parameters() if p.grad is not None])
    assert len(gradients[0]) > 0
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_without_adapters_there_is_nothing_to_hold_on_to(chat: ChatVLM) -> None:
    with pytest.raises(ConfigError, match="no adapters"):
        AdapterReference(chat)


def test_without_a_reference_nothing_is_remembered():
    nothing = NoReference()
    nothing.load_state_dict(nothing.state_dict())
    assert nothing.state_dict() == {}
