"""Runs SavedModels with TensorFlow's C++ session loader, which is what TensorFlow Serving loads models with.

A program of its own, without TensorFlow's Python and without edlz: `python session_loader.py REQUESTS.json`, a list of

    {"library": path of libtensorflow_cc, "threads": 2, "folder": the SavedModel,
     "given": INPUTS.npz, "inputs": {key of INPUTS: "name:0"}, "texts": {"name:0": [base64, …]},
     "found": OUTPUTS.npz, "outputs": {key of OUTPUTS: "name:1"}}
"""

import base64
import ctypes
import json
import sys
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_void_p

import numpy as np

DTYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "bool": 10}
STRING, STRING_BYTES = 7, 24
NAMES = {number: name for name, number in DTYPES.items()}


class Output(ctypes.Structure):
    _fields_ = [("oper", c_void_p), ("index", c_int)]


def library(path):
    tf = ctypes.CDLL(path)
    for name in [
        "TF_NewStatus",
        "TF_NewGraph",
        "TF_NewSessionOptions",
        "TF_NewBuffer",
        "TF_LoadSessionFromSavedModel",
        "TF_AllocateTensor",
        "TF_TensorData",
        "TF_GraphOperationByName",
    ]:
        getattr(tf, name).restype = c_void_p
    tf.TF_Message.restype = c_char_p
    tf.TF_TensorByteSize.restype = c_size_t
    tf.TF_Dim.restype = c_int64
    return tf


class Session:
    def __init__(self, tf, folder, threads):
        self.tf = tf
        self.status = c_void_p(tf.TF_NewStatus())
        self.graph = c_void_p(tf.TF_NewGraph())
        options = c_void_p(tf.TF_NewSessionOptions())
        # ConfigProto: intra_op_parallelism_threads (2) and inter_op_parallelism_threads (5)
        config = bytes([2 << 3, threads, 5 << 3, threads])
        tf.TF_SetConfig(options, config, c_size_t(len(config)), self.status)
        self.check()
        tags = (c_char_p * 1)(b"serve")
        self.session = c_void_p(
            tf.TF_LoadSessionFromSavedModel(
                options, None, folder.encode(), tags, 1, self.graph, None, self.status
            )
        )
        self.check()

    def check(self):
        if self.tf.TF_GetCode(self.status):
            raise SystemExit(self.tf.TF_Message(self.status).decode())

    def place(self, name):
        operation, _, index = name.partition(":")
        found = self.tf.TF_GraphOperationByName(self.graph, operation.encode())
        if not found:
            raise SystemExit(f"the graph has no {name}")
        return Output(c_void_p(found), int(index))

    def tensor(self, array):
        is_text = array.dtype.kind in "OS"
        size = array.size * STRING_BYTES if is_text else array.nbytes
        dims = (c_int64 * array.ndim)(*array.shape)
        kind = STRING if is_text else DTYPES[array.dtype.name]
        tensor = c_void_p(self.tf.TF_AllocateTensor(kind, dims, array.ndim, c_size_t(size)))
        data = self.tf.TF_TensorData(tensor)
        if is_text:
            for place, text in enumerate(array.ravel().tolist()):
                at = c_void_p(data + place * STRING_BYTES)
                self.tf.TF_StringInit(at)
                self.tf.TF_StringCopy(at, bytes(text), c_size_t(len(text)))
        else:
            ctypes.memmove(data, np.ascontiguousarray(array).ctypes.data, size)
        return tensor

    def run(self, inputs, outputs):
        places = (Output * len(inputs))(*(self.place(name) for name, _ in inputs))
        tensors = (c_void_p * len(inputs))(*(self.tensor(array) for _, array in inputs))
        wanted = (Output * len(outputs))(*(self.place(name) for name in outputs))
        found = (c_void_p * len(outputs))()
        self.tf.TF_SessionRun(
            self.session,
            None,
            places,
            tensors,
            len(inputs),
            wanted,
            found,
            len(outputs),
            None,
            0,
            None,
            self.status,
        )
        self.check()
        return [self.array(c_void_p(tensor)) for tensor in found]

    def array(self, tensor):
        shape = [self.tf.TF_Dim(tensor, place) for place in range(self.tf.TF_NumDims(tensor))]
        array = np.empty(shape, NAMES[self.tf.TF_TensorType(tensor)])
        assert array.nbytes == self.tf.TF_TensorByteSize(tensor)
        ctypes.memmove(array.ctypes.data, self.tf.TF_TensorData(tensor), array.nbytes)
        return array


def main(requests):
    with open(requests) as file:
        runs = json.load(file)
    tf = library(runs[0]["library"])
    for names in runs:
        given = np.load(names["given"], allow_pickle=False)
        fed = [(name, given[key]) for key, name in names["inputs"].items()]
        fed += [
            (name, np.array([base64.b64decode(text) for text in texts], object))
            for name, texts in names["texts"].items()
        ]
        session = Session(tf, names["folder"], names["threads"])
        found = session.run(fed, list(names["outputs"].values()))
        np.savez(names["found"], **dict(zip(names["outputs"], found, strict=True)))
    assert "tensorflow" not in sys.modules
    assert not any(name.startswith("edlz") for name in sys.modules)


if __name__ == "__main__":
    main(*sys.argv[1:])
