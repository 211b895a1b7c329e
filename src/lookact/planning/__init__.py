"""Does it fit, and how long does it take."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "costs": "planned_work measured_work fit_rates Rates ModelShape shape_of",
    },
)
