import numpy as np
import pytest

from lookact.errors import ConfigError, JudgeError
from lookact.judges.server.batching import Reply
from lookact.models.vlm.families import FAMILIES
from lookact.models.vlm.loading import LoraSpec, load_chat, save_chat
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.text.answers import official_prompt
from lookact.types import Observation
from lookact.vsi_bench.answerers import MAX_TOKENS, hf_answerer, server_answerer, vllm_answerer


@pytest.fixture
def contents():
    """Three frames and a question, five times."""
    frames = np.random.default_rng(0).integers(0, 255, (5, 3, 64, 96, 3), dtype=np.uint8)
    return [
        [*three, official_prompt("object_counting", f"How many beds, {n}?", None)] for n, three in enumerate(frames)
    ]


def test_replies_are_greedy_short_and_without_a_system_prompt(tiny_folder, contents, chat):
    first, second = (hf_answerer(str(tiny_folder))(contents) for _ in range(2))
    assert first == second
    assert max(reply.completion_tokens for reply in first) == 16
    # the user's turn and the opening of the reply: nothing else is read
    bare = [f"<|im_start|>user\n{content[-1]}<|im_end|>\n<|im_start|>assistant\n" for content in contents]
    read = hf_answerer(str(tiny_folder))([content[-1:] for content in contents])
    assert [reply.prompt_tokens for reply in read] == [len(chat.encode_text(text)) for text in bare]


def test_a_prompt_that_is_too_long_is_refused_alone(tiny_folder, contents):
    replies = hf_answerer(str(tiny_folder), max_context=200)([["word " * 300], contents[0][-1:]])
    assert "exceed the context, 200" in replies[0].error
    assert replies[1].text
    assert not replies[1].error


def test_a_servers_refusal_is_the_rows_and_an_absent_one_everybodys(serve_here, contents):
    def generate(prompts, dropped):
        for index, prompt in enumerate(prompts):
            long = "beds, 3" in str(prompt.messages[0].parts[-1])
            assert (prompt.max_tokens, prompt.temperature, len(prompt.messages)) == (16, 0.0, 1)
            yield index, Reply(error="too long") if long else Reply("4", 1, 1)

    replies = server_answerer(serve_here(generate), model="echo")(contents)
    assert [reply.text for reply in replies] == ["4", "4", "4", "", "4"]
    assert "too long" in replies[3].error


def test_a_server_that_is_not_there_is_told_at_once_unless_it_is_waited_for():
    told = "no server answers at .*: start it, mend the address, or wait longer with --wait SECONDS"
    with pytest.raises(JudgeError, match=told):
        # nothing listens on a port that no process may bind by chance
        server_answerer("http://127.0.0.1:1", model="echo")


def test_adapters_are_for_hugging_face(tiny_folder, tmp_path, contents, monkeypatch):
    save_chat(load_chat(tiny_folder, lora=LoraSpec(rank=2)), tmp_path / "adapters")
    assert hf_answerer(str(tmp_path / "adapters"))(contents[:1]) == hf_answerer(str(tiny_folder))(contents[:1])
    monkeypatch.setattr("lookact.vsi_bench.answerers.need_package", lambda *_, **__: None)
    with pytest.raises(ConfigError, match="adapters alone"):
        vllm_answerer(str(tmp_path / "adapters"))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_answers_as_its_policy_would(family, contents, tmp_path):
    spec = TinySpec(hidden=64, vision_hidden=32, image_size=64, vocabulary=512, family=family)
    folder = make_tiny(tmp_path, corpus=[str(content[-1]) for content in contents], spec=spec)
    sampler = HFSampler(load_chat(folder), Sampling(max_tokens=MAX_TOKENS, greedy=True))
    for row in range(len(contents)):
        sampler.begin(row, 0)
    seen = [Observation(text, dict(zip("abc", frames))) for *frames, text in contents]
    expected = [decision.action for decision in sampler.act(range(len(contents)), seen)]
    assert [reply.text for reply in hf_answerer(str(folder))(contents)] == expected


@pytest.mark.vllm
def test_vllm_gives_the_same_answers(tiny_folder, contents):
    pytest.importorskip("vllm", reason="vLLM is absent: `make test-vllm` runs this")
    asked = [*contents, ["word " * 3000]]
    replies = vllm_answerer(str(tiny_folder), max_context=2048, cpu_cache_gb=0.25)(asked)
    assert [reply.text for reply in replies[:-1]] == [reply.text for reply in hf_answerer(str(tiny_folder))(contents)]
    assert replies[-1].error
