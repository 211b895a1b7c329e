import math

import pytest
import torch

from lookact.ops.preference import bradley_terry, disagreement, pair_entropy


def numbers(*values):
    return torch.tensor(values, dtype=torch.float32)


def test_equal_rewards_cost_log_two():
    loss, metrics = bradley_terry(numbers(3), numbers(3), torch.tensor([1]))
    assert loss.item() == pytest.approx(math.log(2))
    assert metrics["accuracy"] == 0.0


def test_label_zero_means_the_first_is_better():
    gap = math.log(3)  # the second wins with probability 3/4
    assert bradley_terry(numbers(0), numbers(gap), torch.tensor([1]))[0].item() == pytest.approx(-math.log(0.75))
    assert bradley_terry(numbers(0), numbers(gap), torch.tensor([0]))[0].item() == pytest.approx(-math.log(0.25))


def test_gradient_raises_the_preferred_reward():
    first, second = numbers(0.0, 0.0).requires_grad_(), numbers(0.0, 0.0).requires_grad_()
    bradley_terry(first, second, torch.tensor([0, 1]))[0].backward()
    assert first.grad.tolist() == [-0.25, 0.25]
    assert second.grad.tolist() == [0.25, -0.25]


def test_a_soft_label_is_least_costly_at_its_own_probability():
    second = numbers(math.log(3)).requires_grad_()
    bradley_terry(numbers(0.0), second, numbers(0.75))[0].backward()
    assert second.grad.item() == pytest.approx(0.0, abs=1e-7)


def test_accuracy_leaves_undecided_labels_out():
    first, second = numbers(0, 1, 0, 5), numbers(1, 0, 1, 0)
    assert bradley_terry(first, second, numbers(1, 0, 0.2, 0.5))[1]["accuracy"] == pytest.approx(2 / 3)
    assert bradley_terry(first, second, numbers(0.5, 0.5, 0.5, 0.5))[1]["accuracy"] == 0.0


def test_an_ensemble_shares_labels_and_averages_its_losses():
    first, second = torch.zeros(2, 3), torch.tensor([[1.0, 2, 3], [-1, -2, -3]])
    labels = torch.tensor([1, 1, 1])
    loss, metrics = bradley_terry(first, second, labels)
    each = [bradley_terry(first[i], second[i], labels)[0].item() for i in range(2)]
    assert loss.item() == pytest.approx(sum(each) / 2)
    assert metrics["accuracy"] == 0.5


def test_extreme_rewards_stay_finite():
    first = numbers(1e30, -1e30).requires_grad_()
    loss, _ = bradley_terry(first, numbers(-1e30, 1e30), torch.tensor([0, 0]))
    loss.backward()
    assert loss.item() == pytest.approx(1e30)
    assert first.grad.tolist() == [0.0, -0.5]


@pytest.mark.parametrize("label", [-1.0, 1.5, math.nan])
def test_what_is_no_label_raises(label):
    with pytest.raises(ValueError, match="drop pairs"):
        bradley_terry(numbers(0, 0), numbers(1, 1), numbers(1, label))


def test_disagreement_by_hand():
    found = disagreement(torch.tensor([[0.0, 0.5, 0.2], [1.0, 0.5, 0.4]]))
    assert found.tolist() == pytest.approx([0.5, 0.0, 0.1])
    assert disagreement(torch.tensor([[0.3, 0.9]])).tolist() == [0.0, 0.0]


def test_pair_entropy_by_hand():
    found = pair_entropy(torch.tensor([[0.0, 0.5, 0.5], [1.0, 0.5, 0.0]]))
    assert found.tolist() == pytest.approx([0.0, math.log(2), math.log(2) / 2])
