import dataclasses

import numpy as np

from benchmarks.prefill_actor import PrefillActor
from benchmarks.walks import RecordedWalk, make_specs, make_walks
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler


def test_rereading_and_keeping_sample_the_same_tokens_from_the_same_prompts(chat, load):
    # few tokens to choose from, the end among them: replies become ragged, which is where the two could part
    chat.banned[10 : chat.end_id] = True
    sampling = dataclasses.replace(load.sampling, temperature=2.0)
    walks, plans = make_walks(load), make_specs(load)
    kept, reread = (
        collect(plans, [RecordedWalk(walks) for _ in plans], actor(chat, sampling))
        for actor in (HFSampler, PrefillActor)
    )
    lengths = {len(turn.decision.token_ids) for episode in kept for turn in episode.turns}
    assert len(lengths) > 1
    for one, other in zip(kept, reread):
        assert len(one.turns) == len(other.turns) == load.turns
        for a, b in zip(one.turns, other.turns):
            np.testing.assert_array_equal(a.decision.prompt_ids, b.decision.prompt_ids)
            np.testing.assert_array_equal(a.decision.token_ids, b.decision.token_ids)
            np.testing.assert_array_equal(a.decision.mask, b.decision.mask)
            np.testing.assert_allclose(a.decision.logprobs, b.decision.logprobs, atol=1e-4)
            assert (a.decision.fresh, a.decision.action) == (b.decision.fresh, b.decision.action)
