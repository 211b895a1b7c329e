import pytest

from benchmarks.nav_rollout import keeps, rereads


@pytest.mark.slow
def test_both_sides_do_the_same_work_in_every_repetition(folder, load):
    kept, reread = keeps(folder, load), rereads(folder, load)
    first = kept()
    assert first == kept() == reread() == reread()
    assert first["turns"] == load.environments * load.turns
    assert 0 < first["sampled_tokens"] <= first["turns"] * load.reply_tokens
