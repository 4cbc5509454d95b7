"""Squared error of GGUF files beside that of llama.cpp's own encoder, without an importance matrix, on the same weights.

    npm pack @node-llama-cpp/linux-x64@3.22.1 && tar xzf node-llama-cpp-linux-x64-3.22.1.tgz && pip install gguf==0.19.0
    python encoders.py package/bins/linux-x64/libggml-base.so F32.gguf FILE.gguf...

F32.gguf is `precast export --format f32` of the model that the files are of.
"""

import collections
import ctypes
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import GGML_QUANT_SIZES, dequantize

ggml = ctypes.CDLL(sys.argv[1])
ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3, ctypes.c_void_p]


def matrices(path):
    found = [tensor for tensor in GGUFReader(path).tensors if len(tensor.shape) == 2 and tensor.name.startswith("blk.")]
    return {tensor.name: (tensor.data, GGMLQuantizationType(tensor.tensor_type)) for tensor in found}


def theirs(weights, form):
    rows, columns = weights.shape
    elems, size = GGML_QUANT_SIZES[form]
    blocks = np.zeros((rows, columns // elems * size), np.uint8)
    written = ggml.ggml_quantize_chunk(form, weights.ctypes.data, blocks.ctypes.data, 0, rows, columns, None)
    assert written == blocks.size
    return blocks


def squared_error(weights, blocks, form):
    return np.square(dequantize(blocks, form).reshape(weights.shape) - weights, dtype=np.float64).sum()


source = {name: np.ascontiguousarray(dequantize(*data), np.float32) for name, data in matrices(sys.argv[2]).items()}
for path in sys.argv[3:]:
    sums = collections.defaultdict(lambda: [0, 0, 0.0, 0.0])
    for name, (blocks, form) in matrices(path).items():
        weights, of_form = source[name], sums[form.name]
        encoded = theirs(weights, form)
        of_form[0] += 1
        of_form[1] += np.array_equal(encoded.ravel(), blocks.ravel())
        of_form[2] += squared_error(weights, blocks, form)
        of_form[3] += squared_error(weights, encoded, form)
    for form, (count, equal, own, of_ggml) in sums.items():
        ratio = own / of_ggml
        print(f"{path}: {form}: {count} matrices, {equal} of equal bytes, {ratio:.4f} of llama.cpp's squared error")
