import pytest

from lookact.errors import ConfigError
from lookact.serving.limits import Budget, Limits, Refused


def test_a_budget_refuses_what_does_not_fit_and_takes_it_once_there_is_room():
    budget = Budget(10)
    budget.hold(7)
    with pytest.raises(Refused) as caught:
        budget.hold(4)
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "1"})
    budget.release(7)
    budget.hold(10)
    assert budget.held == 10


@pytest.mark.parametrize("bad", [{"queue": 0}, {"body_bytes": -1}, {"request_seconds": float("nan")}])
def test_bounds_must_be_above_zero(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Limits(**bad)
