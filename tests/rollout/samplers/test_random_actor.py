from lookact.rollout.samplers.random_actor import RandomActor
from lookact.types import Observation


def drawn(rows, seeds, turns=3):
    actor = RandomActor(lambda rng: str(rng.integers(1000)))
    for row, seed in zip(rows, seeds):
        actor.begin(row, seed)
    return [[d.action for d in actor.act(rows, [Observation()] * len(rows))] for _ in range(turns)]


def test_a_row_says_what_its_seed_draws_whatever_its_neighbours():
    together, alone = drawn([0, 5], [1, 2]), drawn([5], [2])
    assert [said[1] for said in together] == [said[0] for said in alone]
    assert together[0][0] != together[0][1]


def test_its_decisions_have_no_units():
    actor = RandomActor(lambda rng: "left")
    actor.begin(0, 0)
    (decision,) = actor.act([0], [Observation()])
    assert (decision.action, len(decision.logprobs), len(decision.mask), decision.token_ids) == ("left", 0, 0, None)
    actor.end(0)
