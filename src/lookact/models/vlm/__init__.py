"""Vision-language policy: loading, scoring, adapters, references."""
