"""RL-VLM-F's two query functions over a local server: start it with `lookact serve`, then import these.

The server is the one that SERVER_HOST and SERVER_PORT name. A query list holds texts and images in their order; an
image is a PIL image of any mode or an array of bytes, (h, w), (h, w, 3) or (h, w, 4).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import PIL.Image

from lookact import ParseError
from lookact.judges import ClientSpec, JudgeClient, server_url
from lookact.text import parse_verdict, strip_think

CONCISE = "(Answer concisely, in two sentences.)"


def gemini_query_1(query_list: Sequence[Any], temperature: float = 0.0) -> str:
    """What the model says about the texts and images, without its thinking."""
    content = [part if isinstance(part, str) else to_rgb(part) for part in query_list]
    return strip_think(client(server_url()).ask([*content, CONCISE], max_tokens=512, temperature=temperature))


def gemini_query_2(query_list: Sequence[Any], summary_prompt: str, temperature: float = 0.0) -> str:
    """The label "0", "1" or "-1": a description first, then a verdict on it. A reply that cannot be read is "-1".

    A place `{}` in the summary prompt takes the description; without one, it is put after the prompt.
    """
    description = gemini_query_1(query_list, temperature)
    question = (
        summary_prompt.replace("{}", description) if "{}" in summary_prompt else f"{summary_prompt}\n{description}"
    )
    reply = client(server_url()).ask([question], max_tokens=16, temperature=temperature)
    try:
        return str(parse_verdict(reply))
    except ParseError:
        return "-1"


def to_rgb(image: Any) -> np.ndarray:
    """Pixels (h, w, 3) of a PIL image of any mode, or of an array (h, w), (h, w, 3) or (h, w, 4) of bytes."""
    picture = image if isinstance(image, PIL.Image.Image) else PIL.Image.fromarray(np.asarray(image))
    return np.asarray(picture.convert("RGB"))


@cache
def client(url: str) -> JudgeClient:
    return JudgeClient(ClientSpec(url))


if __name__ == "__main__":
    noise = np.random.default_rng(0).integers(0, 255, (2, 96, 96, 3), dtype=np.uint8)
    sys.stdout.write(
        gemini_query_2(["Image 0:", noise[0], "Image 1:", noise[1], "Which is better?"], "0, 1 or -1?") + "\n"
    )
