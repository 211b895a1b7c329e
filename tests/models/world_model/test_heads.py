import pytest
import torch
from torch import nn

from lookact.errors import ConfigError
from lookact.models.world_model.heads import ActionHead, ActionSpec, CodebookHead, neighbourhoods
from lookact.ops.flow import sample_flow_times

LATENT = 3


def make(head, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        actions = ActionHead(ActionSpec(dim=6, size=2, chunk=3, head=head, std=0.5), 16)
    actions.init_weights(torch.Generator().manual_seed(seed))
    return actions


def test_times_follow_their_distribution():
    times = sample_flow_times(20_000, torch.Generator().manual_seed(0))
    assert times.min() >= 0.001
    assert times.max() <= 1.0
    # of Beta(1.5, 1): mean 0.6, and P(t < 0.25) = 0.125
    assert times.mean().item() == pytest.approx(0.6, abs=0.01)
    assert (times < 0.25).float().mean().item() == pytest.approx(0.125, abs=0.01)


def test_padding_touches_neither_loss_nor_gradient():
    results = []
    for fill in (0.0, 7.0, float("nan")):
        actions = make("flow")
        chunks = torch.full((4, 3, 6), 0.3)
        chunks[..., 2:] = fill
        counts = torch.ones(4, 3, dtype=torch.bool)
        loss = actions.flow_loss(nn.Identity(), chunks, counts, torch.Generator().manual_seed(1))
        loss.backward()
        assert actions.input.weight.grad[:, 2:6].abs().max() == 0
        assert actions.output.weight.grad[2:].abs().max() == 0
        results.append((loss.detach(), actions.input.weight.grad.clone()))
    assert all(loss.equal(results[0][0]) and grad.equal(results[0][1]) for loss, grad in results)


def test_actions_that_do_not_count_are_not_read():
    actions = make("flow")
    counts = torch.tensor([[True, True, False]] * 4)
    chunks = torch.full((4, 3, 6), 0.3)
    other = chunks.clone()
    other[:, 2] = 9.0
    one, two = (actions.flow_loss(nn.Identity(), x, counts, torch.Generator().manual_seed(1)) for x in (chunks, other))
    assert one.equal(two)


@pytest.mark.slow
def test_the_flow_learns_to_make_an_action_from_noise():
    actions = make("flow")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        decide = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam([*actions.parameters(), *decide.parameters()], lr=3e-3)
    wanted = torch.tensor([[0.5, -0.25], [0.0, 0.75], [-0.5, 0.0]])
    chunks = torch.nn.functional.pad(wanted, (0, 4)).expand(64, 3, 6)
    counts = torch.ones(64, 3, dtype=torch.bool)
    for step in range(150):
        loss = actions.flow_loss(decide, chunks, counts, torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    made = actions.sample(decide, torch.randn(64, 3, 6, generator=torch.Generator().manual_seed(0)))
    assert made.shape == (64, 3, 2)
    assert (made.mean(dim=0) - wanted).abs().max() < 0.3
    assert made.std(dim=0).max() < 0.5


def test_the_gaussian_starts_near_zero_and_stays_within_bounds():
    actions = make("gaussian")
    mean = actions.mean(actions.query_tokens(5))
    assert mean.shape == (5, 3, 2)
    assert mean.abs().max() < 0.1
    assert actions.mean(1e4 * torch.ones(1, 3, 16)).abs().max() <= 1.0
    assert actions.log_std.exp().tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("head", ["flow", "gaussian"])
def test_each_head_refuses_the_others_work(head):
    other = "gaussian" if head == "flow" else "flow"
    with pytest.raises(ConfigError, match=f"set it to {other}"):
        make(head).query_tokens(1) if other == "gaussian" else make(head).flow_tokens(
            torch.zeros(1, 3, 6), torch.ones(1)
        )


def make_head(members=2):
    generator = torch.Generator().manual_seed(0)
    head = CodebookHead(members, 8, LATENT, 6, generator)
    books = torch.randn(2, 6, LATENT, generator=generator)
    return head, books


def zero(heads):
    for parameter in heads.parameters():
        parameter.data.zero_()


def test_a_head_of_zeros_predicts_that_nothing_moves():
    head, books = make_head()
    zero(head.heads)
    ids = torch.tensor([[3, 0, 1, 2, 5], [2, 4, 4, 0, 1]])
    baseline = torch.cat([books[0][ids[:, :1]], books[1][ids[:, 1:]]], dim=1)
    logits = head(torch.zeros(2, 5, 8), baseline, books, torch.ones(2, 6), (1, 2))
    assert logits.shape == (2, 2, 5, 6)
    assert logits.argmax(dim=-1).equal(ids.expand(2, -1, -1))


def test_likelihood_falls_with_the_squared_distance():
    head, books = make_head(members=1)
    zero(head.heads)
    baseline = torch.randn(1, 1, LATENT, generator=torch.Generator().manual_seed(1))
    logits = head(torch.zeros(1, 1, 8), baseline, books[:1], torch.ones(1, 6), (1,))[0, 0, 0]
    unit = books[0].square().mean().sqrt()
    distances = ((baseline[0, 0] - books[0]) / unit).square().sum(dim=1) / LATENT
    torch.testing.assert_close(logits - logits[0], distances[0] - distances)


def test_of_two_entries_alike_the_one_in_use_is_likelier_by_as_much_as_it_is_used():
    head, books = make_head(members=1)
    books[0, 1] = books[0, 0]
    usage = torch.tensor([[1.0, 4.0, 1.0, 1.0, 1.0, 1.0]])
    zero(head.heads)
    logits = head(torch.zeros(1, 1, 8), books[0][None, :1], books[:1], usage, (1,))[0, 0, 0]
    assert (logits[1] - logits[0]).exp().item() == pytest.approx(4.0, rel=1e-5)


def test_neighbourhoods_are_a_cell_and_its_eight_neighbours():
    cells = torch.arange(16.0).reshape(1, 16, 1)
    around = neighbourhoods(cells, (1, 2, 4))[0, :, :, 0]
    assert around.shape == (21, 9)
    assert around[0].tolist() == [7.5] * 9
    # the first of four quarters, and its right, lower and diagonal neighbour
    assert around[1].tolist() == [2.5, 2.5, 4.5, 2.5, 2.5, 4.5, 10.5, 10.5, 12.5]
    assert around[5 + 5].tolist() == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert around[5 + 0].tolist() == [0, 0, 1, 0, 0, 1, 4, 4, 5]
