import torch

from lookact.models.vlm.value_head import ValueHead


def test_values_are_zero_until_trained_and_the_policy_gets_no_push() -> None:
    states = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for head in (ValueHead(8), ValueHead(8, hidden=4)):
        values = head(states)
        assert values.shape == (2, 3)
        assert not values.any()
        (gradient,) = torch.autograd.grad((values - 1).square().sum(), states)
        assert not gradient.any()


def test_the_head_works_in_its_own_precision() -> None:
    assert ValueHead(8)(torch.ones(3, 8, dtype=torch.bfloat16)).dtype == torch.float32
