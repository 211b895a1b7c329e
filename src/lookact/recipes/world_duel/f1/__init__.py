"""world-duel's environment as a Gymnasium one, for learners of your own: `lookact/F1-v0`."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, {"env": "F1Env make_f1_env teacher_env student_env"})
