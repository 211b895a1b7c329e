import math

import pytest
import torch

from lookact.ops.curiosity import ensemble_disagreement, knn_entropy_reward, memory_divergence, token_uncertainty


def test_token_uncertainty_is_the_mean_entropy():
    sure, unsure = [1e30, 0.0, 0.0, -math.inf], [0.0, 0.0, 0.0, 0.0]
    logits = torch.tensor([[sure, sure], [unsure, sure], [unsure, unsure]])
    assert token_uncertainty(logits).tolist() == pytest.approx([0.0, math.log(4) / 2, math.log(4)])


def test_ensemble_disagreement_by_hand():
    # variances of (0, 2) and (5, 5), then of (1, 3) and (0, 4)
    predictions = torch.tensor([[[0.0, 5.0], [1.0, 0.0]], [[2.0, 5.0], [3.0, 4.0]]])
    assert ensemble_disagreement(predictions).tolist() == [0.5, 2.5]
    assert ensemble_disagreement(predictions[:1]).tolist() == [0.0, 0.0]


def test_memory_divergence_by_hand():
    before = torch.tensor([[[3.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 0.0]]])
    after = torch.tensor([[[0.0, 4.0], [0.0, 0.0], [1.0, 1.0], [-1.0, 0.0]]])
    assert memory_divergence(before, after).tolist() == pytest.approx([5 / 7, 0, 0, 1])


def test_memory_divergence_joins_layers_and_keeps_rows_apart():
    before = torch.zeros(2, 3, 4)
    after = before.clone()
    after[1, 2] = 1.0
    assert memory_divergence(before, after).tolist() == [0.0, 0.0, 1.0]


def test_memory_divergence_does_not_overflow():
    huge = torch.full((1, 1, 2), 1e30)
    assert memory_divergence(huge, -huge).item() == 1.0


POOL = torch.tensor([[0.0], [1.0], [3.0], [7.0]])


@pytest.mark.parametrize(("k", "distance"), [(1, 0.0), (2, 1.0), (3, 3.0), (4, 7.0), (9, 7.0)])
def test_knn_reward_is_the_log_of_the_kth_distance(k, distance):
    assert knn_entropy_reward(torch.tensor([[0.0]]), POOL, k).item() == pytest.approx(math.log1p(distance))


def test_knn_reward_does_not_depend_on_chunks_or_order():
    draw = torch.Generator().manual_seed(0)
    states, pool = torch.randn(30, 5, generator=draw), torch.randn(101, 5, generator=draw)
    whole = knn_entropy_reward(states, pool, 4)
    torch.testing.assert_close(knn_entropy_reward(states, pool, 4, chunk=7), whole)
    torch.testing.assert_close(knn_entropy_reward(states, pool.flip(0), 4, chunk=50), whole)
    by_hand = (states[:, None] - pool[None]).double().square().sum(-1).sqrt().sort(dim=1).values[:, 3]
    torch.testing.assert_close(whole.expm1().double(), by_hand, rtol=1e-5, atol=1e-5)


def test_knn_reward_finds_a_state_itself_far_from_the_origin():
    pool = 1000 + torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    assert knn_entropy_reward(pool, pool, 1).abs().max() < 1e-4


def test_a_far_state_earns_more_than_a_near_one():
    near, far = knn_entropy_reward(torch.tensor([[2.0], [50.0]]), POOL, 2).tolist()
    assert far > near


def test_knn_reward_needs_a_pool():
    with pytest.raises(ValueError, match="at least 1"):
        knn_entropy_reward(POOL, POOL[:0], 1)
    with pytest.raises(ValueError, match="at least 1"):
        knn_entropy_reward(POOL, POOL, 0)
