import pytest
import torch
from torch import nn

from lookact.algorithms.supervised_phase import supervised_phase

DATA = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
BATCHES = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]] * 4


class Killed(Exception):
    pass


def model() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 1)


def learn(folder, linear, *, killed_at=None, prepared=None, drawn=None, **how):
    def loss_fn(numbers, step):
        if step == killed_at:
            raise Killed
        if drawn is not None:
            drawn.append(step)
        error = (linear(DATA[numbers]) - DATA[numbers].sum(dim=1, keepdim=True)).square().mean()
        return error, {"seen": float(len(numbers))}

    def prepare():
        if prepared is not None:
            prepared.append(1)
        return loss_fn

    supervised_phase(folder, {}, {"model": linear}, prepare, BATCHES, lr=0.3, label="training", save_every=3, **how)


@pytest.mark.parametrize("killed_at", [1, 5, 12])
def test_a_broken_study_ends_as_an_unbroken_one(tmp_path, killed_at):
    whole, broken = model(), model()
    learn(tmp_path / "whole", whole)
    with pytest.raises(Killed):
        learn(tmp_path / "broken", broken, killed_at=killed_at)
    again = model()
    learn(tmp_path / "broken", again)
    assert torch.equal(again.weight, whole.weight)
    assert torch.equal(again.bias, whole.bias)
    lines = [(tmp_path / name / "metrics.jsonl").read_text().count("\n") for name in ("whole", "broken")]
    assert lines == [12, 12]


def test_it_learns(tmp_path):
    linear = model()
    before = (linear.weight - 1).abs().sum()
    learn(tmp_path, linear)
    assert float((linear.weight - 1).abs().sum().detach()) < 0.7 * float(before.detach())


def test_micro_batches_teach_what_the_batch_does_and_draw_by_numbers_of_their_own(tmp_path):
    whole, pieces, first, drawn = model(), model(), [], []
    learn(tmp_path / "whole", whole, drawn=first)
    # four examples a batch: three, and the one that is left
    learn(tmp_path / "pieces", pieces, drawn=drawn, micro_batch_size=3)
    torch.testing.assert_close(pieces.weight, whole.weight)
    torch.testing.assert_close(pieces.bias, whole.bias)
    assert first == list(range(1, 13))
    assert drawn[::2] == first
    assert len(set(drawn)) == len(drawn) == 24


def test_what_is_finished_is_not_prepared_again(tmp_path):
    first, prepared = model(), []
    learn(tmp_path, first, prepared=prepared)
    again = model()
    learn(tmp_path, again, prepared=prepared)
    assert len(prepared) == 1
    assert torch.equal(first.weight, again.weight)


def _apart(folder):
    linear = model()
    learn(folder, linear)
    return linear.weight.detach().numpy()


@pytest.mark.slow
def test_two_processes_learn_what_one_does(tmp_path, together):
    alone = _apart(tmp_path / "alone")
    for weight in together(_apart, tmp_path / "both"):
        assert abs(weight - alone).max() < 1e-6
