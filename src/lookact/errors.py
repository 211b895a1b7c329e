"""Every error LookAct raises on purpose: one line that names what is wrong and how to mend it."""


class LookActError(Exception):
    """The command line prints this as one line, without a traceback."""


class ConfigError(LookActError):
    """A setting is unknown, of the wrong type, or impossible."""


class DataError(LookActError):
    """A file or folder is missing, torn, or not in the format it claims."""


class ParseError(LookActError):
    """A model's reply could not be read as what was asked for."""


class EnvError(LookActError):
    """An environment could not be built, or broke its own rules."""


class EngineError(LookActError):
    """A generation engine failed, or does not answer."""


class JudgeError(LookActError):
    """A judge could not be reached, or never gave a usable verdict."""


class JudgeRefused(JudgeError):
    """A judge's server was reached and said no: asking again would be refused again."""


class StaleWeights(EngineError):
    """The engine acts with other weights than the learner's newest."""


class TokenMismatch(EngineError):
    """Engine and learner disagree about tokens or their log-probabilities."""


class Terminated(SystemExit):
    """SIGTERM asked this process to end: it leaves with 143, as a shell says it; a training run saves first."""

    def __init__(self) -> None:
        super().__init__(143)


class VerificationError(LookActError):
    """A result that was run again came out otherwise."""


class TrainingStopped(LookActError):
    """A run ended itself: the loss is not finite, or too many episodes failed."""
