import importlib.util

import numpy as np
import pytest

from benchmarks.nav_trl import make_environment, make_processor, make_trainer, shown, trains
from benchmarks.walks import RecordedWalk, make_specs, make_walks
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler

needs_trl = pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="needs lookact[bench]")


def test_trl_reads_lookacts_prompts_and_pictures(chat, load):
    walks, plans = make_walks(load), make_specs(load)
    decisions = [t.decision for t in collect(plans[:1], [RecordedWalk(walks)], HFSampler(chat, load.sampling))[0].turns]
    processor = make_processor(chat)
    render = {"tokenize": True, "return_dict": True, "add_generation_prompt": True, "return_tensors": "pt"}
    told = processor.apply_chat_template([{"role": "user", "content": shown(walks[0][0])}], **render)
    np.testing.assert_array_equal(told["input_ids"][0], decisions[0].prompt_ids)
    pixels, grids = chat.encode_images(list(walks[0][0].images.values()))
    np.testing.assert_allclose(told["pixel_values"], pixels, atol=1e-5)
    np.testing.assert_array_equal(told["image_grid_thw"], grids)


def test_a_tool_answer_is_rendered_as_the_next_user_turn(chat, load):
    processor, walk = make_processor(chat), make_walks(load)[0]
    reply = {"role": "assistant", "content": [{"type": "text", "text": "I go."}]}
    users = [{"role": "user", "content": shown(walk[0])}, reply, {"role": "user", "content": shown(walk[1])}]
    tools = [*users[:2], {"role": "tool", "name": "step", "content": shown(walk[1])}]
    assert processor.apply_chat_template(tools) == processor.apply_chat_template(users)
    assert "tool" not in processor.apply_chat_template(tools)


def test_every_reply_is_a_call_of_the_environments_tool(chat, load):
    processor = make_processor(chat)
    call = processor.tokenizer.parse_response(chat.encode_text("Go left.<|im_end|>"), prefix=[], tools=[])
    function = call["tool_calls"][0]["function"]
    environment = make_environment(make_walks(load))()
    environment.reset(walk=1, prompt=[])
    answer = getattr(environment, function["name"])(**function["arguments"])
    assert function["arguments"] == {"reply": "Go left."}
    assert answer[-1]["text"].endswith("Turn 2 of 3.")


@needs_trl
@pytest.mark.slow
def test_trl_takes_all_turns_with_replies_of_the_same_length(folder, load):
    facts = trains(folder, load)()
    assert facts["turns"] == load.environments * load.turns
    assert facts["turns"] < facts["sampled_tokens"] <= facts["turns"] * load.reply_tokens
    assert 0 < facts["picture_seconds"] < facts["cpu_seconds"]


@needs_trl
@pytest.mark.slow
def test_trl_looks_at_every_picture_in_every_turn_and_in_the_update(folder, load):
    trainer = make_trainer(folder, load)
    looked = []

    def note(_, args, kwargs):
        looked.append(len(kwargs["grid_thw"]))

    trainer.model.model.visual.register_forward_pre_hook(note, with_kwargs=True)
    trainer.train()
    # a turn reads all pictures so far; where text and pictures do not match TRL would silently drop them
    assert looked == [load.environments * pictures for pictures in (1, 2, 3, 3)]
