"""Rows that are kept on the disk while they are gathered, and read back as a tensor that the system pages in."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor

from lookact.errors import DataError


class RowFile:
    """Rows of one shape and type, appended to a file that has no name once it is read: it ends with its tensor.

    The system drops its pages when memory is short, so that memory does not grow with the number of rows.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """In `folder`, or where temporary files are."""
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self.file = tempfile.NamedTemporaryFile(dir=folder, prefix=".tmp-rows-", delete=False)  # noqa: SIM115
        self.count, self.shape, self.dtype = 0, torch.Size(), torch.uint8

    def append(self, rows: Tensor) -> None:
        """(n, …), all like the first."""
        if not self.count:
            self.shape, self.dtype = rows.shape[1:], rows.dtype
        if rows.shape[1:] != self.shape or rows.dtype != self.dtype:
            raise DataError(
                f"rows of {tuple(rows.shape[1:])} {rows.dtype} after {tuple(self.shape)} {self.dtype}: give all frames "
                f"of a camera one size"
            )
        self.file.write(rows.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        self.count += len(rows)

    def read(self) -> Tensor:
        """(n, …) of all rows; nothing can be appended after it."""
        self.file.close()
        try:
            size = self.count * self.shape.numel()
            return torch.from_file(self.file.name, shared=False, size=size, dtype=self.dtype).view(-1, *self.shape)
        finally:
            Path(self.file.name).unlink()

    def close(self) -> None:
        """Drop the rows, unless they were read."""
        self.file.close()
        Path(self.file.name).unlink(missing_ok=True)
