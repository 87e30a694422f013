"""The road of OpenCL once more, its kernels compiled as CUDA C++ with the macros of opencl_words.h."""

from cnn_course.chapters.other_roads.roads import source
from cnn_course.chapters.other_roads.roads.cuda_cpp import CudaCpp
from cnn_course.chapters.other_roads.roads.opencl import OpenCL


class Translated(OpenCL):
    """kernels.cl and its launches, on the device of our own kernels."""

    def __init__(self):
        self.cuda = CudaCpp(source("opencl_words.h") + source("kernels.cl"))
        self.array, self.empty, self.host = self.cuda.array, self.cuda.empty, self.cuda.host

    def launch(self, name, items, group, *arguments):
        """Launch a kernel over that many items, in blocks, as CUDA needs."""
        blocks = tuple(-(-count // size) for count, size in zip(items, group, strict=True))
        self.cuda.launch(name, blocks, group, *arguments)
