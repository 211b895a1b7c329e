"""Runs and episodes in a browser: folders become plain records, and a page of its own draws them."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "app": "create_app",
    },
)
