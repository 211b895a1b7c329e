import torch

from lookact.models.vlm.kernels.vision import is_plain, vision_features
from lookact.models.vlm.policy import ChatVLM


def run(function, *args):
    return function(*args)


def test_one_batch_equals_the_stock_tower_and_its_gradients(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [3, 2])
    tower, grids = chat.causal.model.visual, torch.cat(inputs.grids)
    assert is_plain(tower)
    stock = tower(torch.cat(inputs.pixels), grid_thw=grids, return_dict=True)
    (stock.pooler_output.square().sum() + stock.deepstack_features[0].sum()).backward()
    wanted = [parameter.grad.clone() for parameter in tower.parameters()]
    tower.zero_grad()
    features, levels = vision_features(tower, inputs.pixels, grids, run)
    torch.testing.assert_close(features, stock.pooler_output, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(levels[0], stock.deepstack_features[0], rtol=1e-5, atol=1e-5)
    (features.square().sum() + levels[0].sum()).backward()
    for parameter, gradient in zip(tower.parameters(), wanted):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-4)


def test_images_of_many_sizes_go_through_the_stock_tower(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [3], sizes=[(96, 96), (32, 64)])
    tower, grids = chat.causal.model.visual, torch.cat(inputs.grids)
    features, _ = vision_features(tower, inputs.pixels, grids, run)
    alone, _ = vision_features(tower, [inputs.pixels[0][:36]], grids[:1], run)
    torch.testing.assert_close(features[:9], alone, rtol=1e-5, atol=1e-5)


def test_one_image_does_not_see_another(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [2])
    tower, grids = chat.causal.model.visual, inputs.grids[0]
    changed = inputs.pixels[0].clone()
    changed[36:] += 1.0
    before, _ = vision_features(tower, inputs.pixels, grids, run)
    after, _ = vision_features(tower, [changed], grids, run)
    assert torch.equal(before[:9], after[:9])
    assert not torch.allclose(before[9:], after[9:])


def test_a_row_without_images_beside_rows_with_some_changes_nothing(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [2])
    tower, grids = chat.causal.model.visual, inputs.grids[0]
    nothing = inputs.pixels[0][:0]
    with_words, _ = vision_features(tower, [nothing, inputs.pixels[0], nothing], grids, run)
    without, _ = vision_features(tower, inputs.pixels, grids, run)
    assert torch.equal(with_words, without)
