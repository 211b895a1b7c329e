import math

import pytest

from lookact.errors import TokenMismatch
from lookact.training.mismatch import check_mismatch


def test_a_gap_up_to_the_limit_passes():
    check_mismatch(0.0, 1e-4)
    check_mismatch(1e-4, 1e-4)
    check_mismatch(5.0, math.inf)


@pytest.mark.parametrize("gap", [1.1e-4, math.inf, math.nan])
def test_a_larger_gap_or_no_number_is_told_with_its_size(gap):
    with pytest.raises(TokenMismatch, match=f"disagree by {gap:.4f} nats"):
        check_mismatch(gap, 1e-4)
