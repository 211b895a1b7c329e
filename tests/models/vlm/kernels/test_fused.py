import torch
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRMSNorm, apply_rotary_pos_emb

from lookact.models.vlm.kernels.fused import rms_norm, rotate


def test_norm_of_a_worked_example() -> None:
    # root mean square of (3, 4) is sqrt(12.5)
    normed = rms_norm(torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 2.0]), 0.0)
    torch.testing.assert_close(normed, torch.tensor([[3.0, 8.0]]) / 12.5**0.5)


def test_norm_and_its_gradients_equal_the_stock_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    stock = Qwen3VLTextRMSNorm(8)
    torch.nn.init.normal_(stock.weight, generator=generator)
    states = torch.randn(2, 3, 4, 8, generator=generator).requires_grad_()
    upstream = torch.randn(2, 3, 4, 8, generator=generator)
    wanted = torch.autograd.grad(stock(states), (states, stock.weight), upstream)
    normed = rms_norm(states, stock.weight, stock.variance_epsilon)
    torch.testing.assert_close(normed, stock(states))
    torch.testing.assert_close(torch.autograd.grad(normed, (states, stock.weight), upstream), wanted)
    with torch.no_grad():
        assert torch.equal(rms_norm(states, stock.weight, stock.variance_epsilon), normed)


def test_norm_in_half_precision_is_the_stock_one() -> None:
    stock = Qwen3VLTextRMSNorm(8).bfloat16()
    states = torch.randn(5, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert torch.equal(rms_norm(states, stock.weight, stock.variance_epsilon), stock(states))


def test_rotation_and_its_gradient_equal_the_stock_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(2, 5, 3, 8, generator=generator).requires_grad_()
    angles = torch.randn(2, 5, 4, generator=generator).repeat(1, 1, 2)
    upstream = torch.randn(2, 5, 3, 8, generator=generator)
    stock, _ = apply_rotary_pos_emb(states, states, angles.cos(), angles.sin(), unsqueeze_dim=2)
    turned = rotate(states, angles.cos().unsqueeze(2), angles.sin().unsqueeze(2))
    torch.testing.assert_close(turned, stock)
    torch.testing.assert_close(
        torch.autograd.grad(turned, states, upstream), torch.autograd.grad(stock, states, upstream)
    )
    torch.testing.assert_close(turned.norm(dim=-1), states.norm(dim=-1))
