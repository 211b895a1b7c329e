import os
import subprocess
import sys

import pytest
import torch

from lookact.models.vla.encoders import TextEncoder, TextSpec, open_bert, sinusoids, tiny_bert, train_wordpiece

CORPUS = ["put the red cube on the blue stand", "lift the green brick onto the red stand"]
SPEC = TextSpec(hidden=32, layers=1, length=16)


def reader(seed: int = 0) -> TextEncoder:
    tokenizer = train_wordpiece(CORPUS, SPEC)
    return TextEncoder(
        SPEC, open_bert("tiny", tiny_bert(hidden=32, layers=1, vocabulary=len(tokenizer), length=16), seed), tokenizer
    )


def test_known_words_are_whole_and_each_unknown_one_is_one_token():
    tokenizer = train_wordpiece(CORPUS, SPEC)
    assert tokenizer.tokenize("Put the red CUBE") == ["put", "the", "red", "cube"]
    assert tokenizer.tokenize("please grab the cube!") == ["[UNK]", "[UNK]", "the", "cube", "!"]


def test_position_embeddings_tell_distances_alike_everywhere():
    places = sinusoids(32, 64)
    products = places @ places.T
    torch.testing.assert_close(products.diagonal(), torch.ones(32))
    for distance in (1, 2, 5):
        along = products.diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along))
        assert float(along[0]) < 0.99
    bert = open_bert("tiny", tiny_bert(hidden=64, layers=1, vocabulary=9, length=32), 0)
    assert torch.equal(bert.embeddings.position_embeddings.weight, places)


@pytest.mark.slow
def test_ids_do_not_depend_on_the_process():
    code = (
        "from lookact.models.vla.encoders import *;"
        f"print(train_wordpiece({CORPUS!r}, TextSpec())('put the green cube there')['input_ids'])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        ).stdout
        for seed in ("1", "2")
    }
    assert told == {f"{train_wordpiece(CORPUS, SPEC)('put the green cube there')['input_ids']}\n"}


def test_ids_are_padded_and_cut_to_one_length():
    ids = reader().tokenize(["red", " ".join(["cube"] * 40)])
    assert ids.shape == (2, 16)
    assert (ids[0] == 0).sum() == 13
    assert (ids[1] == 0).sum() == 0


def test_padding_does_not_leak():
    mind = reader()
    ids = mind.tokenize(["put the red cube on the blue stand"])
    torch.testing.assert_close(mind(ids), mind(ids[:, :10]), atol=1e-6, rtol=1e-5)


def test_a_frozen_reader_reads_each_instruction_once_and_says_the_same():
    mind = reader()
    ids = mind.tokenize([CORPUS[0], CORPUS[1], CORPUS[0]])
    learning = mind(ids).detach()
    mind.requires_grad_(False)
    calls = []
    mind.encoder.register_forward_hook(lambda *_: calls.append(1))
    assert torch.allclose(mind(ids), learning, atol=1e-6)
    assert torch.equal(mind(ids[:1]), mind(ids)[2:])
    # two instructions, one by one: in a batch the last digits would depend on the other
    assert len(calls) == 2


def test_what_was_read_is_forgotten_with_the_weights():
    mind, other = reader(), reader(seed=1)
    for each in (mind, other):
        each.requires_grad_(False)
    ids = mind.tokenize(CORPUS)
    mind(ids)
    mind.load_state_dict(other.state_dict())
    assert torch.equal(mind(ids), other(ids))


def test_a_reader_that_learns_keeps_nothing():
    mind = reader()
    ids = mind.tokenize(CORPUS)
    before = mind(ids).detach()
    with torch.no_grad():
        mind.encoder.embeddings.word_embeddings.weight.mul_(2.0)
    assert not torch.allclose(mind(ids), before)
