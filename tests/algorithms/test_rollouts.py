import pytest

from lookact.algorithms.rollouts import stop_on_errors
from lookact.errors import TrainingStopped
from lookact.types import Episode

WHOLE = Episode("a", 0, 1, ())
BROKEN = Episode("b", 0, 2, (), error="OSError: no such room")


def test_a_share_of_failures_that_is_allowed_stops_nothing():
    stop_on_errors([WHOLE, BROKEN], 0.5, 0.5)


@pytest.mark.parametrize(
    ("episodes", "reason"), [([BROKEN, WHOLE], "OSError: no such room"), ([WHOLE], "an error in another process")]
)
def test_more_failures_stop_the_run_and_the_last_is_named(episodes, reason):
    with pytest.raises(TrainingStopped, match=f"^50% of the episodes failed, the last with: {reason}$"):
        stop_on_errors(episodes, 0.5, 0.2)
