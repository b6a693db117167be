"""What a CUDA graph cannot capture, found on the meta device, where nothing is allocated or computed."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WAITS = {
    "_local_scalar_dense",
    "bincount",
    "equal",
    "is_nonzero",
    "masked_select",
    "nonzero",
    "unique_dim",
    "unique_consecutive",
    "_unique2",
}
"""Operations whose results the host waits for."""
FREE = set(
    "alias as_strided detach empty empty_like expand lift_fresh new_empty permute reshape select slice split "
    "split_with_sizes squeeze t transpose unbind unsqueeze view _reshape_alias _unsafe_view".split()
)
"""Operations that launch no kernel."""


class Capturing(TorchDispatchMode):
    """Collects the device's operations: ``broken`` those that wait, ``kernels`` the others.

    Tensors on the CPU are the host's. Only copies that do not wait may send them to the device.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[str] = []
        self.broken: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        out = func(*args, **kwargs)
        read, made = ([x for x in tree_leaves(y) if isinstance(x, Tensor)] for y in ((args, kwargs), out))
        if not any(x.is_meta for x in (*read, *made)):
            return out
        of_host = [x for x in (*read, *made) if not x.is_meta and x.dim()]
        sent = name in ("_to_copy", "copy_") and all(x.is_meta for x in made)
        masks = [x for x in tree_leaves(args[1:2]) if isinstance(x, Tensor) and x.dtype == torch.bool]
        if name in WAITS or (name in ("index", "index_put", "index_put_") and masks):
            self.broken.append(f"{name} waits")
        elif of_host and not (
            sent and (kwargs.get("non_blocking") or (name == "copy_" and args[2:] == (True,)))
        ):
            self.broken.append(f"{name} mixes host and device")
        elif name not in FREE:
            self.kernels.append(name)
        return out
