from lookact.viewer.tokens import find_tokenizer, pieces_of, token_texts

REPLY = 'Go: {"a": 1}.'
IDS = [*REPLY.encode(), 256]
MASK = [4 <= at < 12 for at in range(len(IDS))]


def marked(pieces):
    return "".join(piece["text"] for piece in pieces if piece["counts"])


def test_a_reply_is_cut_into_its_tokens_with_those_that_count(tmp_path, write_tokenizer):
    pieces, exact = pieces_of(REPLY, IDS, MASK, write_tokenizer(tmp_path))
    assert exact
    assert [piece["text"] for piece in pieces] == [*REPLY, "<|im_end|>"]
    assert marked(pieces) == '{"a": 1}'


def test_without_the_tokenizer_the_action_is_found_in_the_text():
    pieces, exact = pieces_of(REPLY, IDS, MASK, None)
    assert not exact
    assert pieces == [
        {"text": "Go: ", "counts": False},
        {"text": '{"a": 1}', "counts": True},
        {"text": ".", "counts": False},
    ]
    assert pieces_of(REPLY, IDS, [False] * len(IDS), None)[0] == [{"text": REPLY, "counts": False}]


def test_another_models_tokenizer_is_not_believed(tmp_path, write_tokenizer):
    shifted = [id + 1 for id in IDS[:-1]]
    pieces, exact = pieces_of(REPLY, shifted, MASK[:-1], write_tokenizer(tmp_path))
    assert not exact
    assert marked(pieces) == '{"a": 1}'


def test_a_letter_of_two_tokens_shows_with_the_second():
    table = [bytes([byte]) for byte in range(256)]
    assert [text for text, _ in token_texts("é!".encode(), table, {})] == ["", "é", "!"]
    assert list(token_texts([300], table, {})) == [("<300>", True)]


def test_the_nearest_tokenizer_is_taken_and_none_from_outside(tmp_path, write_tokenizer):
    outside = write_tokenizer(tmp_path)
    store = tmp_path / "runs/a/episodes"
    store.mkdir(parents=True)
    assert find_tokenizer(tmp_path / "runs", store) is None
    of_run = write_tokenizer(tmp_path / "runs/a/best")
    assert find_tokenizer(tmp_path / "runs", store) == of_run
    own = write_tokenizer(store / "model")
    assert find_tokenizer(tmp_path / "runs", store) == own
    assert outside.exists()
