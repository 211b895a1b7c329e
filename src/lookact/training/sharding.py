"""FSDP2 under its former path; it is in `distributed.py`."""

from lookact.training.distributed import share_out as share_out
from lookact.training.distributed import share_out_control as share_out_control
from lookact.training.distributed import unshard as make_whole
from lookact.training.distributed import whole as whole

__all__ = ["make_whole"]
