import importlib.util
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lookact.judges.server.batching import Reply

EXAMPLE = Path(__file__).parents[2] / "examples" / "gemini_compat.py"


@pytest.fixture
def compat(serve_here, monkeypatch):
    """The example, and what the server behind it was asked."""
    asked, verdict = [], ["-1"]

    def generate(prompts, dropped):
        for index, prompt in enumerate(prompts):
            asked.append(prompt)
            sees = any(not isinstance(part, str) for part in prompt.messages[0].parts)
            yield index, Reply("<think>0? 1?</think>Both are dark." if sees else verdict[0])

    monkeypatch.setenv("SERVER_HOST", "127.0.0.1")
    monkeypatch.setenv("SERVER_PORT", serve_here(generate).rpartition(":")[2])
    spec = importlib.util.spec_from_file_location("gemini_compat", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, asked, verdict


def test_texts_and_images_of_either_kind_are_described(compat, images):
    module, asked, _ = compat
    assert module.gemini_query_1(["first", Image.fromarray(images[0]), "second", images[1]]) == "Both are dark."
    parts = asked[0].messages[0].parts
    assert [part if isinstance(part, str) else part.shape for part in parts[:4]] == [
        "first", (32, 32, 3), "second", (32, 32, 3)
    ]  # fmt: skip
    np.testing.assert_array_equal(parts[1], images[0])
    assert asked[0].temperature == 0


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1"])
def test_pictures_of_every_mode_arrive_whole(compat, images, mode):
    module, asked, _ = compat
    picture = Image.fromarray(images[0]).convert(mode)
    module.gemini_query_1(["look", picture])
    np.testing.assert_array_equal(asked[0].messages[0].parts[1], np.asarray(picture.convert("RGB")))


def test_greyscale_arrays_arrive_whole(compat, images):
    module, asked, _ = compat
    module.gemini_query_1(["look", images[0, :, :, 0]])
    np.testing.assert_array_equal(asked[0].messages[0].parts[1], np.repeat(images[0, :, :, :1], 3, axis=2))


@pytest.mark.parametrize(("reply", "label"), [("-1", "-1"), ("1", "1"), ("The answer is 0.", "0"), ("banana", "-1")])
def test_a_label_comes_of_the_description(compat, images, reply, label):
    module, asked, verdict = compat
    verdict[0] = reply
    assert module.gemini_query_2(["look", images[0]], "Read this: {} Now answer.") == label
    assert asked[1].messages[0].parts == ("Read this: Both are dark. Now answer.",)
    assert asked[1].max_tokens == 16
