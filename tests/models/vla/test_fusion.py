import torch

from lookact.models.vla.policy import Fusion


def fusion(layers: int = 2) -> Fusion:
    return Fusion(16, layers, 2, torch.Generator().manual_seed(0))


def test_the_readout_does_not_care_in_which_order_tokens_stand():
    tokens = torch.randn(3, 5, 16)
    torch.testing.assert_close(fusion()(tokens), fusion()(tokens.flip(1)), atol=1e-5, rtol=1e-5)


def test_every_token_is_read():
    tokens = torch.randn(1, 5, 16, requires_grad=True)
    # not a plain sum: behind a norm that is constant
    fusion()(tokens)[0, 0].backward()
    assert (tokens.grad.abs().sum(dim=-1) > 0).all()


def test_a_token_that_asks_alone_is_answered_as_among_all():
    block = fusion(1).blocks[0]
    tokens = torch.randn(3, 5, 16)
    torch.testing.assert_close(block(tokens, queries=2), block(tokens)[:, :2], atol=1e-6, rtol=1e-5)
