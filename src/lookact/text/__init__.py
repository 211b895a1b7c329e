"""Text in and out of chat policies: prompts, actions, answers, verdicts."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "actions": "parse_action parse_move_or_answer reasoning_of ActionMask mask_action_tokens",
        "answers": "score_answer mean_relative_accuracy QUESTION_TYPES NUMERIC_TYPES",
        "chat": "Spelling",
        "tokenizers": "assert_same_tokenizer",
        "verdicts": "parse_verdict strip_think",
    },
)
