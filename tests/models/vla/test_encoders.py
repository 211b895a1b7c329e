import pytest
import torch
from transformers import BertModel, Dinov2Model

from lookact.errors import ConfigError, DataError
from lookact.models.vla.encoders import open_bert, open_dinov2, set_finetune, tiny_bert, tiny_dinov2

DINO = tiny_dinov2(hidden=64, layers=1, image_size=32, patch=8)
BERT = tiny_bert(hidden=32, layers=1, vocabulary=50, length=8)


def test_weights_are_as_loud_as_what_goes_in():
    model = open_dinov2("tiny", DINO, 0)
    fan_in = 3 * 8 * 8
    assert float(model.embeddings.patch_embeddings.projection.weight.detach().std()) == pytest.approx(
        fan_in**-0.5, rel=0.05
    )
    assert float(model.embeddings.position_embeddings.detach().std()) == pytest.approx(1.0, rel=0.1)
    assert torch.equal(model.embeddings.cls_token, open_dinov2("tiny", DINO, 0).embeddings.cls_token)


def test_a_pretrained_encoder_comes_from_its_folder(tmp_path):
    open_dinov2("tiny", DINO, 3).save_pretrained(tmp_path / "dino")
    open_bert("tiny", BERT, 3).save_pretrained(tmp_path / "bert")
    dino, bert = open_dinov2(str(tmp_path / "dino"), None, 0), open_bert(str(tmp_path / "bert"), None, 0)
    assert isinstance(dino, Dinov2Model)
    assert isinstance(bert, BertModel)
    for loaded, made in ((dino, open_dinov2("tiny", DINO, 3)), (bert, open_bert("tiny", BERT, 3))):
        assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), made.parameters()))


def test_dropout_is_off_also_where_the_checkpoint_had_it(tmp_path):
    config = tiny_bert(hidden=32, layers=1, vocabulary=50, length=8)
    config.hidden_dropout_prob = 0.5
    BertModel(config).save_pretrained(tmp_path)
    bert = open_bert(str(tmp_path), None, 0).train()
    ids = torch.tensor([[2, 5, 7, 3]])
    assert torch.equal(bert(ids).last_hidden_state, bert(ids).last_hidden_state)


def test_another_family_is_refused(tmp_path):
    open_bert("tiny", BERT, 0).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="is a bert model: choose a dinov2 checkpoint"):
        open_dinov2(str(tmp_path), None, 0)


def test_a_missing_encoder_is_one_line(tmp_path):
    with pytest.raises(DataError, match=r"cannot load .*nowhere") as error:
        open_dinov2(str(tmp_path / "nowhere"), None, 0)
    assert "\n" not in str(error.value)


def test_full_holds_nothing_back_and_frozen_everything():
    assert all(
        parameter.requires_grad
        for parameter in set_finetune(open_bert("tiny", BERT, 0), "full", rank=4, seed=0).parameters()
    )
    assert not any(
        parameter.requires_grad
        for parameter in set_finetune(open_bert("tiny", BERT, 0), "frozen", rank=4, seed=0).parameters()
    )
