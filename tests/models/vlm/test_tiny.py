import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer, Qwen3VLForConditionalGeneration

from lookact.batch import TokenInputs
from lookact.errors import ConfigError
from lookact.models.vlm.loading import load_chat
from lookact.models.vlm.policy import ChatVLM
from lookact.models.vlm.tiny import TinySpec, make_tiny, train_tokenizer
from lookact.text.chat import SPECIAL_TOKENS


def test_folder_has_the_layout_of_a_snapshot(tiny_folder: Path) -> None:
    names = {path.name for path in tiny_folder.iterdir()}
    assert {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "preprocessor_config.json",
        "video_preprocessor_config.json",
    } <= names
    assert json.loads((tiny_folder / "config.json").read_text())["architectures"] == ["Qwen3VLForConditionalGeneration"]


def test_stock_classes_load_it(tiny_folder: Path) -> None:
    model = AutoModelForImageTextToText.from_pretrained(tiny_folder)
    assert type(model) is Qwen3VLForConditionalGeneration
    assert model.lm_head.weight is model.model.language_model.embed_tokens.weight


def test_default_size_is_about_800_thousand(tmp_path: Path, corpus: list[str]) -> None:
    texts = [*corpus, *(f"{number} {chr(97 + number % 26)}" * 3 for number in range(2000))]
    folder = make_tiny(tmp_path, corpus=texts)
    model = Qwen3VLForConditionalGeneration.from_pretrained(folder)
    assert model.config.text_config.vocab_size == TinySpec().vocabulary
    assert 0.7e6 < sum(p.numel() for p in model.parameters()) < 0.9e6


def test_an_action_is_five_tokens_with_numbers_apart(tiny_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    ids = tokenizer.encode('{"rotation_angle_degrees": -30, "forward_meters": 0.75}', add_special_tokens=False)
    assert [tokenizer.decode([i]) for i in ids] == [
        '{"rotation_angle_degrees": ',
        "-30",
        ', "forward_meters": ',
        "0.75",
        "}",
    ]


def test_any_text_survives_the_tokenizer(tiny_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    text = "  Größe: 3.5m\n\t→ 部屋 -0.25,\r\n"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_special_tokens_are_whole_and_no_piece_swallows_one() -> None:
    tokenizer = train_tokenizer([f"a{token}b" for token in SPECIAL_TOKENS] * 50, TinySpec())
    assert all(len(tokenizer.encode(token)) == 1 for token in SPECIAL_TOKENS)
    assert not any("|>" in piece for piece in tokenizer.get_vocab() if piece not in SPECIAL_TOKENS)


def test_no_piece_is_longer_than_allowed() -> None:
    tokenizer = train_tokenizer(
        ["the same long sentence again and again, without an end"] * 99, TinySpec(piece_length=9)
    )
    assert max(len(piece) for piece in tokenizer.get_vocab() if piece not in SPECIAL_TOKENS) in (8, 9)


def test_the_seed_alone_decides_the_weights(tmp_path: Path, corpus: list[str]) -> None:
    torch.manual_seed(1)
    first = make_tiny(tmp_path / "a", corpus=corpus, seed=3)
    torch.manual_seed(2)
    same = make_tiny(tmp_path / "b", corpus=corpus, seed=3)
    other = make_tiny(tmp_path / "c", corpus=corpus, seed=4)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (first, same, other)]
    assert weights[0] == weights[1] != weights[2]


def test_linears_start_at_one_over_root_fan_in(tiny_folder: Path) -> None:
    model = Qwen3VLForConditionalGeneration.from_pretrained(tiny_folder)
    down = model.model.language_model.layers[0].mlp.down_proj.weight
    kernel = model.model.visual.patch_embed.proj.weight
    assert float(down.detach().std()) == pytest.approx(256**-0.5, rel=0.03)
    assert float(kernel.detach().std()) == pytest.approx(1536**-0.5, rel=0.03)
    assert float(model.model.visual.pos_embed.weight.detach().std()) == pytest.approx(1.0, rel=0.05)


def test_image_size_must_be_whole_cells(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="image_size 100"):
        make_tiny(tmp_path, corpus=["a"], spec=TinySpec(image_size=100))


def places(chat: ChatVLM, random: np.random.Generator, rows: int) -> TokenInputs:
    """Pictures of noise with a red post in one of six columns, and the number of that column as the reply."""
    columns = random.integers(6, size=rows)
    images = random.integers(0, 200, (rows, 96, 96, 3), dtype=np.uint8)
    for image, column in zip(images, columns):
        image[20:80, 16 * column + 4 : 16 * column + 12] = (255, 0, 0)
    pixels, grids = chat.encode_images(list(images))
    prompt = chat.encode_text("<|vision_start|>" + "<|image_pad|>" * 9 + "<|vision_end|>")
    ids = torch.tensor([prompt + chat.encode_text(str(column)) for column in columns])
    positions = torch.full((rows, 1), len(prompt))
    return TokenInputs(ids, torch.ones_like(ids).bool(), positions, tuple(pixels.split(36)), tuple(grids.split(1)))


@pytest.mark.slow
def test_it_learns_to_see_where_a_thing_is(tmp_path: Path) -> None:
    chat = load_chat(make_tiny(tmp_path, corpus=["012345"]))
    optimiser = torch.optim.Adam(chat.parameters(), lr=1e-3)
    random = np.random.default_rng(0)
    for _ in range(60):
        optimiser.zero_grad()
        (-chat.evaluate(places(chat, random, 32)).logprobs.mean()).backward()
        optimiser.step()
    with torch.no_grad():
        likelihood = chat.evaluate(places(chat, random, 64)).logprobs.exp().mean()
    assert float(likelihood) > 0.9
