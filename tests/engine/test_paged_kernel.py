"""The Triton kernels of paged attention without a GPU: in Triton's interpreter, and compiled for one.

As a program the file computes ``CASES`` and prints the results: the interpreter must be chosen before Triton
is imported.
"""

import glob
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from soft_reasoning.engine.huggingface.block_manager import BLOCK
from soft_reasoning.engine.huggingface.paged_attention import PART, attend_blocks

CASES = {
    "Llama": {"heads": 2, "repeat": 4, "longest": 100},
    "Qwen2": {"heads": 1, "repeat": 7, "d": 128, "dv": 128, "longest": 300},
    "heads of 80": {"repeat": 1, "d": 80, "dv": 80, "longest": 40},
    "narrow values, a window": {"repeat": 4, "dv": 32, "longest": 300, "window": 100},
    "soft cap": {"repeat": 2, "d": 16, "dv": 12, "longest": 300, "softcap": 30.0},
    "sinks, a window and a cap": {"repeat": 4, "longest": 290, "window": 40, "softcap": 50.0, "sinks": True},
    "half precision": {"repeat": 4, "longest": 100, "dtype": "float16"},
}


def compute(
    heads=2, repeat=4, d=64, dv=64, longest=100, window=None, softcap=None, sinks=False, dtype="float32"
):
    """Largest difference from PyTorch's result, and whether a row alone has the bits that it has in a batch.

    What lies behind the tokens' positions is NaN.
    """
    from soft_reasoning.engine.huggingface import paged_kernel

    torch.manual_seed(0)
    rows, width, kind = 3, longest // BLOCK + 1, getattr(torch, dtype)
    count = rows * width
    keys, values = torch.randn(count, heads, d, BLOCK), torch.randn(count, heads, BLOCK, dv)
    positions = torch.tensor([longest - 1, longest // 3, longest // 2])
    table = torch.randperm(count).view(rows, width).int()
    for blocks, position in zip(table, positions.tolist(), strict=True):
        last, after = blocks[position // BLOCK], position % BLOCK + 1
        keys[last, :, :, after:] = values[last, :, after:] = torch.nan
        keys[blocks[position // BLOCK + 1 :]] = torch.nan
    q, keys, values = torch.randn(rows, heads * repeat, d).to(kind), keys.to(kind), values.to(kind)
    options = {"scale": d**-0.5, "window": window, "softcap": softcap, "sinks": None}
    if sinks:
        options["sinks"] = torch.randn(heads * repeat)
    expected = attend_blocks(q, keys, values, table, positions, **options)
    got = paged_kernel.attend_blocks(q, keys, values, table, positions, *options.values())
    used = int(positions[2]) // BLOCK + 1
    alone = table[2:, :used].contiguous()
    alone = paged_kernel.attend_blocks(q[2:], keys, values, alone, positions[2:], *options.values())
    return float((got.float() - expected.float()).abs().max()), torch.equal(alone[0], got[2])


@pytest.fixture(scope="module")
def interpreted():
    pytest.importorskip("triton", reason="Triton is not installed; .ci/run triton installs it")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, str(Path(__file__))]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert not shown.returncode, shown.stderr
    return json.loads(shown.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_interpreted_kernel_gives_pytorchs_numbers(interpreted, name):
    error, same_bits = interpreted[name]
    assert error < (1e-3 if "half" in name else 5e-6) and same_bits


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, d, repeat", [("bf16", 128, 4), ("bf16", 128, 7), ("bf16", 64, 7), ("fp32", 64, 4)]
)
def test_it_compiles_for_a_gpu_without_spills(kind, d, repeat, tmp_path):
    """For compute capability 9.0: tensor cores in half precision, 16 bytes at a time, few registers."""
    triton = pytest.importorskip("triton", reason="Triton is not installed; .ci/run triton installs it")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from soft_reasoning.engine.huggingface import paged_kernel

    kernel = paged_kernel._attend_part
    pointers = dict.fromkeys(("q", "keys", "values"), f"*{kind}") | {"table": "*i32", "positions": "*i64"}
    pointers |= {"sums": "*fp32", "lse": "*fp32"}
    numbers = {"scale": "fp32", "softcap": "fp32"} | dict.fromkeys(
        ("window", "width", "heads", "parts"), "i32"
    )
    constants = {
        "repeat": repeat,
        "d": d,
        "dv": d,
        "LANES": 16,
        "BLOCK": BLOCK,
        "PART": PART,
        "CAPPED": False,
    }
    constants |= {"D": d, "DV": d}
    aligned = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in pointers}
    source = ASTSource(kernel, pointers | numbers | dict.fromkeys(constants, "constexpr"), constants, aligned)
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    assert ("mma.sync" in built.asm["ptx"]) == (kind == "bf16")
    assert "cp.async.cg.shared.global" in built.asm["ptx"]  # 16 bytes
    assert built.metadata.shared < 48 * 1024
    (tmp_path / "kernel").write_bytes(built.asm["cubin"])
    [tool] = glob.glob(f"{Path(triton.__file__).parent}/backends/nvidia/bin/cuobjdump")
    used = subprocess.run(
        [tool, "--dump-resource-usage", tmp_path / "kernel"], capture_output=True, text=True
    )
    assert "STACK:0" in used.stdout and "LOCAL:0" in used.stdout
    assert int(used.stdout.partition("REG:")[2].split()[0]) <= 96


if __name__ == "__main__":
    print(json.dumps({name: compute(**options) for name, options in CASES.items()}))
