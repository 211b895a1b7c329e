import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from lookact.ops.logprobs import adjust_logits, entropy_of, gather_logprobs, sample_tokens, score_tokens

INF = math.inf
PROBABILITIES = torch.tensor([0.5, 0.3, 0.15, 0.05])
LOGITS = PROBABILITIES.log()


def kept(logits):
    return (logits > -INF).nonzero().flatten().tolist()


def test_defaults_change_nothing():
    assert torch.equal(adjust_logits(LOGITS), LOGITS)


def test_temperature_divides_and_banned_is_minus_infinity():
    out = adjust_logits(LOGITS, temperature=0.5, banned=torch.tensor([True, False, False, False]))
    assert out[0] == -INF
    assert torch.allclose(out[1:], 2 * LOGITS[1:])


def test_half_precision_logits_come_out_in_float32():
    assert adjust_logits(LOGITS.bfloat16()).dtype == torch.float32
    assert adjust_logits(LOGITS.double()).dtype == torch.float64


@pytest.mark.parametrize(
    ("top_k", "ids"), [(0, [0, 1, 2, 3]), (1, [0]), (2, [0, 1]), (4, [0, 1, 2, 3]), (9, [0, 1, 2, 3])]
)
def test_top_k_keeps_the_likeliest(top_k, ids):
    assert kept(adjust_logits(LOGITS, top_k=top_k)) == ids


@pytest.mark.parametrize(
    ("top_p", "ids"),
    [(1e-12, [0]), (0.49, [0]), (0.6, [0, 1]), (0.9, [0, 1, 2]), (0.96, [0, 1, 2, 3]), (1, [0, 1, 2, 3])],
)
def test_top_p_keeps_the_token_that_crosses(top_p, ids):
    assert kept(adjust_logits(LOGITS, top_p=top_p)) == ids


def test_top_p_counts_the_mass_that_bans_and_top_k_left():
    # of 0.3 and 0.15 the first holds two thirds
    banned = torch.tensor([True, False, False, False])
    assert kept(adjust_logits(LOGITS, banned=banned, top_k=2, top_p=0.66)) == [1]
    assert kept(adjust_logits(LOGITS, banned=banned, top_k=2, top_p=0.67)) == [1, 2]


def test_equal_logits_are_filtered_by_id():
    assert kept(adjust_logits(torch.zeros(5000), top_k=3)) == [0, 1, 2]
    # two quarters already hold one half
    assert kept(adjust_logits(torch.zeros(4), top_p=0.5)) == [0, 1]


def test_each_row_is_filtered_by_itself():
    out = adjust_logits(torch.stack([LOGITS, LOGITS.flip(0)])[None], top_k=1)
    assert [kept(out[0, 0]), kept(out[0, 1])] == [[0], [3]]


def test_a_kept_token_survives_the_filters_but_not_the_ban():
    assert kept(adjust_logits(LOGITS, top_k=1, keep=torch.tensor(3))) == [0, 3]
    banned = torch.tensor([False, False, False, True])
    assert kept(adjust_logits(LOGITS, top_k=1, banned=banned, keep=torch.tensor(3))) == [0]


@pytest.mark.parametrize(
    "wrong", [{"temperature": 0.0}, {"temperature": math.nan}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1}]
)
def test_impossible_settings_raise(wrong):
    with pytest.raises(ValueError, match="must be"):
        adjust_logits(LOGITS, **wrong)


def test_gather_and_entropy_of_known_distributions():
    assert gather_logprobs(LOGITS.expand(2, 4), torch.tensor([1, 3])).exp().tolist() == pytest.approx([0.3, 0.05])
    assert entropy_of(torch.zeros(8)) == pytest.approx(math.log(8))
    assert entropy_of(torch.tensor([0.0, -INF, 0.0])) == pytest.approx(math.log(2))
    assert entropy_of(torch.tensor([1e30, -1e30, -INF])) == 0.0


def test_extreme_logits_stay_finite_in_value_and_gradient():
    logits = torch.tensor([[1e30, -1e30, 0.0], [0.0, 1.0, 2.0]], requires_grad=True)
    banned = torch.tensor([False, False, True])
    out = adjust_logits(logits, banned=banned)
    picked = gather_logprobs(out, torch.tensor([0, 1]))
    (picked.sum() + entropy_of(out).sum()).backward()
    assert picked[0] == 0.0
    assert logits.grad.isfinite().all()
    assert torch.equal(logits.grad[:, 2], torch.zeros(2))
    assert gather_logprobs(out, torch.tensor([1, 2])).tolist() == [pytest.approx(-2e30), -INF]


def test_a_masked_out_banned_id_sends_no_nan_back():
    logits = torch.zeros(2, 3, requires_grad=True)
    out = gather_logprobs(adjust_logits(logits, banned=torch.tensor([False, False, True])), torch.tensor([0, 2]))
    torch.where(torch.tensor([True, False]), out, 0.0).sum().backward()
    assert torch.allclose(logits.grad, torch.tensor([[0.5, -0.5, 0.0], [0.0, 0.0, 0.0]]))


def head(rows=23, width=8, words=50, seed=0):
    draw = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, width, generator=draw)
    weight = torch.randn(words, width, generator=draw)
    return hidden.requires_grad_(), weight.requires_grad_(), torch.randint(0, 20, (rows,), generator=draw)


FILTERS = {"temperature": 0.7, "banned": torch.arange(50) >= 45, "top_k": 30, "top_p": 0.95}


@pytest.mark.parametrize("chunk", [1, 4, 23, 100])
def test_chunks_change_neither_scores_nor_gradients(chunk):
    hidden, weight, ids = head()
    logits = adjust_logits(hidden @ weight.T, keep=ids, **FILTERS)
    expected = gather_logprobs(logits, ids), entropy_of(logits)
    wanted = torch.autograd.grad(expected[0].sum() + expected[1].square().sum(), [hidden, weight])
    logprobs, entropy = score_tokens(hidden, weight, ids, chunk=chunk, **FILTERS)
    found = torch.autograd.grad(logprobs.sum() + entropy.square().sum(), [hidden, weight])
    torch.testing.assert_close((logprobs, entropy), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_scores_agree_with_the_distribution_that_was_sampled():
    hidden, weight, _ = head(rows=200)
    logits = adjust_logits(hidden @ weight.T, **FILTERS)
    ids = sample_tokens(logits, torch.linspace(0, 1, 200))
    logprobs, _ = score_tokens(hidden, weight, ids, chunk=64, **FILTERS)
    torch.testing.assert_close(logprobs, gather_logprobs(logits, ids), rtol=1e-5, atol=1e-5)
    assert logprobs.isfinite().all()


def test_a_token_that_left_the_nucleus_keeps_a_finite_score():
    hidden, weight = torch.ones(1, 1), LOGITS[:, None]
    logprobs, _ = score_tokens(hidden, weight, torch.tensor([3]), top_k=1)
    assert logprobs.exp().item() == pytest.approx(0.05 / 0.55)


def test_no_positions_give_empty_scores():
    hidden, weight, ids = head()
    logprobs, entropy = score_tokens(hidden[:0], weight, ids[:0], **FILTERS)
    assert logprobs.shape == entropy.shape == (0,)


class LargestTensor(TorchDispatchMode):
    """Remembers the largest tensor that any operation returned."""

    def __init__(self):
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            self.size = max(self.size, x.numel() if isinstance(x, torch.Tensor) else 0)
        return out


def test_no_tensor_of_all_rows_by_all_words_ever_lives():
    hidden, weight, ids = head(rows=64, words=100)
    with LargestTensor() as seen:
        logprobs, entropy = score_tokens(hidden, weight, ids, chunk=16)
        (logprobs.sum() + entropy.sum()).backward()
    assert seen.size == 16 * 100


def test_between_passes_only_small_tensors_are_kept():
    hidden, weight, ids = head(rows=64, words=100)
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
        score_tokens(hidden, weight, ids, chunk=16)
    assert 16 * 100 not in sizes


def test_sampling_inverts_the_cumulative_distribution():
    uniforms = torch.tensor([0.0, 0.49, 0.51, 0.79, 0.81, 0.94, 0.96, 1.0])
    assert sample_tokens(LOGITS.expand(8, 4), uniforms).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_sampling_matches_the_probabilities():
    uniforms = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    counts = sample_tokens(LOGITS.expand(1000, 4), uniforms).bincount()
    assert counts.tolist() == [500, 300, 150, 50]


@given(
    st.lists(
        st.one_of(st.just(-INF), st.floats(-(2.0**100), 2.0**100, width=32), st.floats(-5, 5, width=32)),
        min_size=1,
        max_size=12,
    ),
    st.one_of(st.sampled_from([0.0, 5e-324, 1 - 2**-53, 1 - 2**-24, 1.0]), st.floats(0, 1)),
)
def test_sampling_never_picks_an_impossible_token(numbers, uniform):
    logits = torch.tensor([numbers], dtype=torch.float32)
    if logits.max() == -INF:
        return
    picked = int(sample_tokens(logits, torch.tensor([uniform], dtype=torch.float64)))
    assert logits[0, picked] > -INF
    assert logits.double().softmax(-1)[0, picked] > 0


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53, 1.0])
def test_the_ends_of_the_interval_land_on_possible_tokens(uniform):
    logits = torch.full((1, 1000), -INF)
    logits[0, 3:10] = torch.tensor([0.1, 0.2, 0.3, 5.0, 0.3, 0.2, 0.1])
    picked = int(sample_tokens(logits, torch.tensor([uniform], dtype=torch.float64)))
    assert picked == (3 if uniform == 0 else 9)


def test_sampling_sees_tails_that_float32_rounds_away():
    # the second token holds 2.06e-9 of the mass, less than float32 can tell from 1
    uniforms = torch.tensor([1 - 3e-9, 1 - 1e-9], dtype=torch.float64)
    assert sample_tokens(torch.tensor([[0.0, -20.0]]).expand(2, 2), uniforms).tolist() == [0, 1]


def test_a_search_that_slips_onto_an_impossible_token_falls_back_to_the_likeliest(monkeypatch):
    monkeypatch.setattr(torch, "searchsorted", lambda *_, **__: torch.tensor([[0]]))
    assert sample_tokens(torch.tensor([[-INF, 0.0, 1.0]]), torch.tensor([0.0])).tolist() == [2]


def test_a_row_does_not_depend_on_its_batch():
    logits = torch.randn(16, 200, generator=torch.Generator().manual_seed(1))
    uniforms = torch.rand(16, generator=torch.Generator().manual_seed(2))
    alone = [int(sample_tokens(logits[i : i + 1], uniforms[i : i + 1])) for i in range(16)]
    assert sample_tokens(logits, uniforms).tolist() == alone


def test_no_uniforms_pick_greedily():
    assert sample_tokens(LOGITS.flip(0).expand(2, 4), None).tolist() == [3, 3]


@pytest.mark.parametrize("row", [[-INF, -INF], [math.nan, 0.0], [INF, 0.0]])
def test_a_row_without_a_distribution_raises(row):
    with pytest.raises(ValueError, match="no token left"):
        sample_tokens(torch.tensor([[0.0, 0.0], row]), torch.tensor([0.5, 0.5]))
