"""Judges that compare what two images show."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "client": "ClientSpec JudgeClient server_url",
        "vlm_judge": "VLMJudge ReplyCache",
        "teachers": "Teacher",
        "goals": "goal_of",
    },
)
