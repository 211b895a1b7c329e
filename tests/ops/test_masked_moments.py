from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from lookact.ops.masked import RunningMoments, sums


@given(cuts=st.lists(st.integers(0, 40), max_size=4), offset=st.sampled_from([0.0, 1e3]), seed=st.integers(0, 99))
def test_parts_come_to_the_same_as_the_whole(cuts, offset, seed):
    x = offset + torch.randn(40, 3, generator=torch.Generator().manual_seed(seed))
    moments = RunningMoments(3)
    edges = [0, *sorted(cuts), 40]
    for start, stop in pairwise(edges):
        moments.merge(*sums(x[start:stop]))
    torch.testing.assert_close(moments.mean, x.double().mean(0), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(moments.deviation, x.double().std(0, correction=0), rtol=1e-5, atol=1e-6)


def test_unseen_and_constant_numbers_have_deviation_one():
    moments = RunningMoments(2)
    assert moments.deviation.tolist() == [1.0, 1.0]
    moments.merge(*sums(torch.tensor([[5.0, 1.0], [5.0, 3.0]])))
    assert moments.mean.tolist() == [5.0, 2.0]
    assert moments.deviation.tolist() == [1.0, 1.0]


def test_a_restored_one_goes_on_alike():
    first, second = RunningMoments(1), RunningMoments(1)
    first.merge(*sums(torch.tensor([[1.0], [4.0]])))
    second.load_state_dict(first.state_dict())
    for moments in (first, second):
        moments.merge(*sums(torch.tensor([[7.0]])))
    assert (first.count, first.mean.item(), first.deviation.item()) == (3.0, 4.0, 6.0**0.5)
    assert first.state_dict() == second.state_dict()
