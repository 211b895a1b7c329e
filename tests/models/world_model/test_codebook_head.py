import pytest
import torch

from lookact.models.world_model.codebook_head import Foresight, surroundings

LATENT = 3


def make(members=2):
    generator = torch.Generator().manual_seed(0)
    foresight = Foresight(members, 8, LATENT, 6, generator)
    books = torch.randn(2, 6, LATENT, generator=generator)
    return foresight, books


def silence(heads):
    for parameter in heads.parameters():
        parameter.data.zero_()


def test_heads_that_say_nothing_foresee_what_stands_there_already():
    foresight, books = make()
    silence(foresight.heads)
    ids = torch.tensor([[3, 0, 1, 2, 5], [2, 4, 4, 0, 1]])
    still = torch.cat([books[0][ids[:, :1]], books[1][ids[:, 1:]]], dim=1)
    logits = foresight(torch.zeros(2, 5, 8), still, books, torch.ones(2, 6), (1, 2))
    assert logits.shape == (2, 2, 5, 6)
    assert logits.argmax(dim=-1).equal(ids.expand(2, -1, -1))


def test_likelihood_falls_with_the_squared_distance():
    foresight, books = make(members=1)
    silence(foresight.heads)
    still = torch.randn(1, 1, LATENT, generator=torch.Generator().manual_seed(1))
    logits = foresight(torch.zeros(1, 1, 8), still, books[:1], torch.ones(1, 6), (1,))[0, 0, 0]
    unit = books[0].square().mean().sqrt()
    distances = ((still[0, 0] - books[0]) / unit).square().sum(dim=1) / LATENT
    torch.testing.assert_close(logits - logits[0], distances[0] - distances)


def test_of_two_entries_alike_the_one_in_use_is_likelier_by_as_much_as_it_is_used():
    foresight, books = make(members=1)
    books[0, 1] = books[0, 0]
    usage = torch.tensor([[1.0, 4.0, 1.0, 1.0, 1.0, 1.0]])
    silence(foresight.heads)
    logits = foresight(torch.zeros(1, 1, 8), books[0][None, :1], books[:1], usage, (1,))[0, 0, 0]
    assert (logits[1] - logits[0]).exp().item() == pytest.approx(4.0, rel=1e-5)


def test_surroundings_are_a_cell_and_its_eight_neighbours():
    cells = torch.arange(16.0).reshape(1, 16, 1)
    around = surroundings(cells, (1, 2, 4))[0, :, :, 0]
    assert around.shape == (21, 9)
    assert around[0].tolist() == [7.5] * 9
    # the first of four quarters, and its right, lower and diagonal neighbour
    assert around[1].tolist() == [2.5, 2.5, 4.5, 2.5, 2.5, 4.5, 10.5, 10.5, 12.5]
    assert around[5 + 5].tolist() == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert around[5 + 0].tolist() == [0, 0, 1, 0, 0, 1, 4, 4, 5]
