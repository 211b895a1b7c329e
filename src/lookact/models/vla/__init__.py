"""Vision-language-action policy."""
