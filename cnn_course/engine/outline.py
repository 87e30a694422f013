"""The outline of the course: its notebooks with their titles, minutes and exercises.

Everything in the course may import this module; it imports nothing from the course.
"""

from typing import NamedTuple


class Notebook(NamedTuple):
    """A notebook.

    Attributes
    ----------
    number : str
    topic : str
        Names its file, ``NUMBER_TOPIC.ipynb``, and its folder in ``cnn_course/chapters``.
    title : str
    part : str
        A key of `PARTS`.
    minutes : int
        As `notebooks.minutes` counts them.
    exercises : tuple of str
        In order. The docstring of its `exercises` names their files, if it is a package.
    earlier : tuple of str
        Its numbers in the first edition: older workbooks store answers under them.
    """

    number: str
    topic: str
    title: str
    part: str
    minutes: int
    exercises: tuple
    earlier: tuple

    @property
    def stem(self) -> str:
        """The name of its file, without the suffix."""
        return f"{self.number}_{self.topic}"


#: The parts of the course and their titles.
PARTS = {
    "your_network": "Part I: your network",
    "make_it_fast": "Part II: make it fast",
    "further": "Part III: further",
}

NOTEBOOKS = (
    Notebook(
        "00", "start_here", "Start here", "your_network", 25, ("brighten_kernel", "count_kernel"), ("00",)
    ),
    Notebook(
        "01",
        "convolution_on_the_cpu",
        "Convolution on the CPU",
        "your_network",
        55,
        ("conv_by_hand", "convolve", "conv_same", "autocorrelation", "conv_fft"),
        ("01",),
    ),
    Notebook(
        "02",
        "first_cuda_kernels",
        "First CUDA kernels",
        "your_network",
        60,
        ("axpy_kernel", "relu_on_gpu", "autocorrelation_kernel", "relu_stride_kernel", "mirror_kernel"),
        ("02",),
    ),
    Notebook(
        "03",
        "convolution_on_the_gpu",
        "Convolution on the GPU",
        "your_network",
        65,
        (
            "conv_valid_kernel",
            "conv_channels_kernel",
            "conv2d_kernel",
            "shrink",
        ),
        ("03",),
    ),
    Notebook(
        "04",
        "debugging",
        "Debugging GPU code",
        "your_network",
        40,
        ("edges_kernel", "standardise_kernel"),
        ("11",),
    ),
    Notebook(
        "05",
        "pooling_and_softmax",
        "Pooling and softmax",
        "your_network",
        35,
        ("max_pool_kernel", "softmax_kernel"),
        ("05",),
    ),
    Notebook(
        "06", "dense_layers", "Dense layers", "your_network", 25, ("matmul_kernel", "dense_kernel"), ("06",)
    ),
    Notebook(
        "07",
        "backprop_by_hand",
        "Backprop by hand",
        "your_network",
        70,
        ("linear_backward", "conv_backward_weight", "cross_entropy_gradient", "name_the_bug"),
        ("07",),
    ),
    Notebook(
        "08",
        "backward_kernels",
        "Backward kernels",
        "your_network",
        80,
        (
            "cross_entropy_kernel",
            "dense_backward_weight_kernel",
            "dense_backward_input_kernel",
            "relu_backward_kernel",
            "bias_gradient_kernel",
            "max_pool_backward_kernel",
            "conv2d_backward_weight_kernel",
            "conv2d_backward_input_kernel",
        ),
        ("07b",),
    ),
    Notebook(
        "09",
        "mnist_cnn",
        "The MNIST CNN",
        "your_network",
        60,
        ("momentum_kernel", "adam_step", "adam_kernel"),
        ("08",),
    ),
    Notebook(
        "10",
        "the_machine",
        "The machine",
        "make_it_fast",
        80,
        (
            "warps_needed",
            "choose_launch",
            "bias_relu_kernel",
            "conv_nhwc_kernel",
            "warp_sums_kernel",
            "under_the_roof",
        ),
        ("02b", "03"),
    ),
    Notebook(
        "11",
        "shared_memory_and_tiling",
        "Shared memory and tiling",
        "make_it_fast",
        90,
        (
            "smooth_kernel",
            "smooth_any_kernel",
            "conv_channels_kernel",
            "conv_strided_kernel",
            "turn_kernel",
            "conv_spread_kernel",
        ),
        ("04",),
    ),
    Notebook(
        "12",
        "reductions",
        "Reductions",
        "make_it_fast",
        90,
        ("block_sums_kernel", "row_max_kernel", "scan_kernel", "compact_kernel"),
        ("05", "11"),
    ),
    Notebook(
        "13",
        "matrix_product",
        "The matrix product",
        "make_it_fast",
        45,
        ("matmul_tiled_kernel", "matmul_2x2_kernel"),
        ("06",),
    ),
    Notebook(
        "14",
        "convolution_as_matmul",
        "Convolution as matmul",
        "make_it_fast",
        60,
        ("matmul_1x4_kernel", "split_kernel", "im2col_kernel", "conv_implicit_kernel"),
        ("06b",),
    ),
    Notebook(
        "15",
        "launches_and_graphs",
        "Launches and graphs",
        "make_it_fast",
        80,
        ("add_in_streams", "centre_kernel", "capturable_step", "cause_of", "channel_sums"),
        ("09",),
    ),
    Notebook(
        "16",
        "mixed_precision",
        "Mixed precision",
        "make_it_fast",
        55,
        ("decode_float16", "stochastic_kernel", "conv_half_kernel", "unscale_kernel"),
        ("10",),
    ),
    Notebook(
        "17",
        "tensor_cores",
        "Tensor Cores",
        "make_it_fast",
        45,
        ("held_by", "nearest_tf32", "warp_product_kernel", "split_tf32"),
        ("10b",),
    ),
    Notebook(
        "18",
        "capstone",
        "Capstone",
        "make_it_fast",
        70,
        ("filter_gradient_kernel", "forward_maps_kernel", "your_swaps", "your_layer"),
        (),
    ),
    Notebook(
        "19",
        "repairing_a_program",
        "Repairing a program",
        "further",
        55,
        ("pool_maps_kernel", "softmax_kernel", "edge_maps", "is_softmax"),
        ("11b",),
    ),
    Notebook(
        "20",
        "other_parts",
        "Other parts",
        "further",
        70,
        (
            "sigmoid_backward_kernel",
            "squared_error_backward_kernel",
            "channel_statistics_kernel",
            "norm_backward_kernel",
        ),
        ("08b",),
    ),
    Notebook(
        "21",
        "colour_images",
        "A ConvNet for colour images",
        "further",
        60,
        ("decayed_step_kernel", "crop_and_flip_kernel", "folded_convolution_kernel", "new_last_layer"),
        ("12",),
    ),
    Notebook(
        "22",
        "sequences",
        "Sequences",
        "further",
        65,
        ("lstm_cell_kernel", "last_states", "lstm_cell_backward_kernel", "backward_through_time"),
        ("13",),
    ),
    Notebook(
        "23",
        "attention",
        "Attention",
        "further",
        65,
        ("causal_softmax_kernel", "online_step", "tiled_attention_kernel", "softmax_backward_kernel"),
        ("13b",),
    ),
    Notebook(
        "24",
        "many_gpus",
        "Many GPUs",
        "further",
        60,
        ("share_of", "combined_gradient", "ring_all_reduce", "ring_seconds"),
        ("14",),
    ),
    Notebook(
        "25",
        "other_roads",
        "Other roads",
        "further",
        85,
        ("block_sums_source", "standardise_rows", "pooling_program", "tune"),
        ("15",),
    ),
    Notebook(
        "26",
        "frameworks_and_engines",
        "Frameworks and engines",
        "further",
        80,
        ("for_keras", "traffic", "fold_batch_norm", "int8_dense"),
        ("15b",),
    ),
)


def notebook_on(topic: str) -> Notebook:
    """Return the notebook with this topic."""
    return next(notebook for notebook in NOTEBOOKS if notebook.topic == topic)
