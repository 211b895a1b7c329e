import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer

from lookact.text.chat import CHAT_TEMPLATE, SPECIAL_TOKENS

CORPUS = [
    'I see a chair to the left, so I turn. {"rotation_angle_degrees": -30, "forward_meters": 0.75}',
    '<think>go on</think>\n```json\n{"rotation_angle_degrees": 15, "forward_meters": 0.5}\n```',
    'The café is über there 🚪: {"answer": "B"}} {{"note": "a \\"b\\""}',
]


@pytest.fixture(scope="session")
def byte_tokenizer():
    """One token a byte, Qwen's class: every span of text aligns with tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Qwen2Tokenizer(vocab={character: id for id, character in enumerate(alphabet)}, merges=[])
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL_TOKENS)})
    tokenizer.add_tokens([AddedToken("<think>", special=False), AddedToken("</think>", special=False)])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def train(corpus, vocab_size=400):
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    core.train_from_iterator(corpus, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHAT_TEMPLATE
    )


@pytest.fixture(scope="session")
def bpe_tokenizer():
    """Merges across words and punctuation: tokens that hold several braces, and characters split over tokens."""
    return train(CORPUS * 4)


@pytest.fixture(scope="session")
def other_tokenizer():
    """Trained on other text: same size, other merges."""
    return train(["to be or not to be, that is the question of questions"] * 4)
