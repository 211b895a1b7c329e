"""Other people's clients against the server, over a tiny model: the openai package, and lm-eval's harness."""

import importlib.util
import json

import pytest

from lookact.judges.client import encode_png
from lookact.judges.server.batching import Message, Prompt

absent = not all(importlib.util.find_spec(name) for name in ("openai", "lm_eval"))
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(absent, reason="openai or lm-eval is absent: `make test-interop` runs this"),
]
USER = [{"role": "user", "content": "Find the bed."}]


@pytest.fixture
def engine(chat):
    from lookact.rollout.samplers.chat_engine import ChatEngine

    return ChatEngine(chat)


@pytest.fixture
def url(serve_here, engine):
    return serve_here(engine)


@pytest.fixture
def client(url):
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def greedy(engine, text, **settings):
    """The reply to one user message, by the engine itself."""
    return dict(engine([Prompt((Message("user", (text,)),), **settings)], lambda index: False))[0]


def test_openai_asks_with_every_setting(client, engine, images):
    whole = greedy(engine, "Find the bed.", max_tokens=24).text
    ask = {"model": "echo", "messages": USER, "max_tokens": 24, "temperature": 0}
    plain = client.chat.completions.create(**ask)
    assert plain.choices[0].message.content == whole
    stop = whole[5:8]
    stopped = client.chat.completions.create(**ask, stop=[stop, "\n\n"])
    assert stopped.choices[0].message.content == whole[: whole.find(stop)]
    assert stopped.choices[0].finish_reason == "stop"
    several = client.chat.completions.create(**ask | {"temperature": 1.0}, n=3, seed=5)
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in several.choices}) == 3
    told = client.chat.completions.create(**ask, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert len(told) == plain.usage.completion_tokens
    assert all(place.logprob == pytest.approx(place.top_logprobs[0].logprob, abs=1e-4) for place in told)
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encode_png(images[0])}"}}
    seen = {"role": "user", "content": [picture, {"type": "text", "text": "Find the bed."}]}
    both = [{"role": "developer", "content": "Be brief."}, seen, plain.choices[0].message.model_dump(), *USER]
    assert client.chat.completions.create(**ask | {"messages": both}).usage.prompt_tokens > plain.usage.prompt_tokens


def test_openai_streams(client, engine):
    whole = greedy(engine, "Find the bed.", max_tokens=24)
    stream = client.chat.completions.create(
        model="echo", messages=USER, max_tokens=24, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.text
    assert chunks[-1].choices[0].finish_reason == whole.finish
    assert last.usage.completion_tokens == whole.completion_tokens


def test_openai_finds_the_model_and_understands_refusals(client):
    import openai

    assert [card.id for card in client.models.list()] == ["echo"]
    assert client.models.retrieve("echo").id == "echo"
    with pytest.raises(openai.NotFoundError, match="no model 'Qwen/Qwen3' here"):
        client.models.retrieve("Qwen/Qwen3")
    with pytest.raises(openai.NotFoundError, match="ask for 'echo'"):
        client.chat.completions.create(model="gpt-4o", messages=USER)
    with pytest.raises(openai.UnprocessableEntityError, match="ask for JSON in the prompt"):
        client.chat.completions.create(model="echo", messages=USER, response_format={"type": "json_object"})


TASK = """
task: beds
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: [{stop}], max_gen_toks: 24, temperature: 0, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""


def test_lm_eval_scores_the_served_model(url, engine, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    import lm_eval
    from lm_eval.tasks import TaskManager

    questions = [f"Find the bed. Turn {turn} of 3." for turn in range(1, 5)]
    stop = greedy(engine, questions[0], max_tokens=24).text[8:10]
    # two of four answers are what the model says up to the stop, the others what it does not say
    said = [greedy(engine, question, max_tokens=24, stop=(stop,)).text for question in questions]
    answers = [said[0], said[1], "nothing", "nothing"]
    rows = [{"question": question, "answer": answer} for question, answer in zip(questions, answers)]
    (tmp_path / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "tasks").mkdir()
    task = TASK.format(rows=tmp_path / "rows.json", stop=json.dumps(stop))
    (tmp_path / "tasks/beds.yaml").write_text(task)
    result = lm_eval.simple_evaluate(
        model="local-chat-completions",
        model_args={"base_url": f"{url}/v1/chat/completions", "model": "echo", "num_concurrent": 2},
        tasks=["beds"],
        task_manager=TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False),
        apply_chat_template=True,
        bootstrap_iters=0,
    )
    samples = sorted(result["samples"]["beds"], key=lambda sample: sample["doc_id"])
    assert [sample["resps"][0][0] for sample in samples] == said
    assert result["results"]["beds"]["exact_match,none"] == 0.5
