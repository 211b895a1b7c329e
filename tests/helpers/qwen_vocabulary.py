"""Qwen's own vocabulary, from the package `dashscope`, and a tiny Qwen3-VL that has it."""

import base64
import importlib.util
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration

from lookact.models.vlm.families import FAMILIES
from lookact.models.vlm.families.family import write_files
from lookact.models.vlm.tiny import TinySpec, initialise, model_config
from lookact.seeding import torch_rng
from lookact.text.chat import CHAT_TEMPLATE, SPECIAL_TOKENS

PLAIN_TOKENS = (
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>",
    "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>",
)  # fmt: skip
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ROWS = 151_936
"""Of Qwen3-VL's embedding: more than there are tokens."""
SPEC = TinySpec(hidden=32, layers=2, heads=2, key_heads=1, vision_hidden=32, vision_depth=1, image_size=448)


def vocabulary_file():
    found = importlib.util.find_spec("dashscope")
    return None if found is None else Path(found.origin).parent / "resources/qwen.tiktoken"


def read_ranks(path):
    """Each piece's bytes and its rank, which is its id."""
    lines = path.read_bytes().splitlines()
    return {base64.b64decode(piece): int(rank) for piece, rank in (line.split() for line in lines)}


def merges_of(ranks):
    """Pairs of pieces that make a piece, in the order in which BPE joins them."""
    for piece in ranks:
        pairs = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        known = [pair for pair in pairs if pair[0] in ranks and pair[1] in ranks]
        yield from sorted(known, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))


def make_tokenizer(path):
    """The tokenizer of Qwen2.5-VL and Qwen3-VL: their vocabulary, way to cut words, and added tokens."""
    ranks = read_ranks(path)
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    spelled = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}

    def spell(piece):
        return "".join(map(spelled.__getitem__, piece))

    core = Tokenizer(
        models.BPE(
            vocab={spell(piece): rank for piece, rank in ranks.items()},
            merges=[(spell(left), spell(right)) for left, right in merges_of(ranks)],
        )
    )
    core.normalizer = normalizers.NFC()
    cut = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    core.pre_tokenizer = pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(False, use_regex=False)])
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    core.add_tokens([AddedToken(token, special=False, normalized=False) for token in PLAIN_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


@pytest.fixture(scope="session")
def qwen_tokenizer():
    path = vocabulary_file()
    if path is None:
        pytest.skip("Qwen's vocabulary is absent: `make test-real` runs this")
    return make_tokenizer(path)


@pytest.fixture(scope="session")
def qwen_folder(qwen_tokenizer, tmp_path_factory):
    """A checkpoint folder of a tiny Qwen3-VL with that vocabulary, its embedding as long as the real one's."""
    folder = tmp_path_factory.mktemp("qwen") / "Qwen3-VL-tiny"
    qwen_tokenizer.save_pretrained(folder)
    config, family = model_config(qwen_tokenizer, SPEC), FAMILIES["qwen3-vl"]
    write_files(family, config, family.tiny_images(SPEC), folder)
    config.text_config.vocab_size = ROWS
    model = Qwen3VLForConditionalGeneration(config).eval()
    initialise(model, torch_rng(0, "tiny"))
    model.generation_config = GenerationConfig(eos_token_id=qwen_tokenizer.eos_token_id, do_sample=True)
    model.save_pretrained(folder)
    return folder
