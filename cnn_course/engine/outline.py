"""The outline of the course: what its notebooks are called, how long they take, and their exercises.

Everything in the course may import this; it imports nothing of the course.
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
    part : {"kernels", "training", "beyond"}
    minutes : int
        As `notebooks.minutes` counts them.
    exercises : tuple of str
        In their order.
    """

    number: str
    topic: str
    title: str
    part: str
    minutes: int
    exercises: tuple

    @property
    def stem(self) -> str:
        """The name of its file, without the ending."""
        return f"{self.number}_{self.topic}"


NOTEBOOKS = (
    Notebook("00", "start_here", "Start here", "kernels", 30, ("brighten_kernel", "count_kernel")),
    Notebook(
        "01",
        "convolution_on_the_cpu",
        "Convolution on the CPU",
        "kernels",
        65,
        ("conv_by_hand", "convolve", "conv_same", "autocorrelation", "conv_fft"),
    ),
    Notebook(
        "02",
        "first_cuda_kernels",
        "First CUDA kernels",
        "kernels",
        75,
        ("axpy_kernel", "relu_on_gpu", "autocorrelation_kernel", "relu_stride_kernel", "mirror_kernel"),
    ),
    Notebook("02b", "the_machine", "The machine", "kernels", 35, ("warps_needed", "warp_sums_kernel")),
    Notebook(
        "03",
        "convolution_on_the_gpu",
        "Convolution on the GPU",
        "kernels",
        85,
        (
            "conv_valid_kernel",
            "conv_channels_kernel",
            "conv2d_kernel",
            "bias_relu_kernel",
            "conv_nhwc_kernel",
        ),
    ),
    Notebook(
        "04",
        "shared_memory_and_tiling",
        "Shared memory and tiling",
        "kernels",
        80,
        ("smooth_kernel", "conv_channels_kernel", "conv_strided_kernel", "turn_kernel"),
    ),
    Notebook(
        "05",
        "pooling_and_reductions",
        "Pooling and reductions",
        "kernels",
        90,
        ("max_pool_kernel", "block_sums_kernel", "row_max_kernel", "histogram_kernel", "softmax_kernel"),
    ),
    Notebook(
        "06",
        "dense_is_matmul",
        "Dense is matmul",
        "kernels",
        70,
        ("matmul_kernel", "matmul_tiled_kernel", "matmul_2x2_kernel", "dense_kernel"),
    ),
    Notebook(
        "06b",
        "convolution_as_matmul",
        "Convolution as matmul",
        "kernels",
        55,
        ("split_kernel", "im2col_kernel", "conv_implicit_kernel"),
    ),
    Notebook(
        "07",
        "backprop_by_hand",
        "Backprop by hand",
        "training",
        75,
        ("linear_backward", "conv_backward_weight", "cross_entropy_gradient", "name_the_bug"),
    ),
    Notebook(
        "07b",
        "backward_kernels",
        "Backward kernels",
        "training",
        85,
        (
            "cross_entropy_kernel",
            "dense_backward_weight_kernel",
            "dense_backward_input_kernel",
            "bias_gradient_kernel",
            "relu_backward_kernel",
            "max_pool_backward_kernel",
            "conv2d_backward_weight_kernel",
            "conv2d_backward_input_kernel",
        ),
    ),
    Notebook(
        "08",
        "mnist_cnn",
        "The MNIST CNN",
        "training",
        85,
        ("receptive_field", "momentum_kernel", "adam_step", "adam_kernel", "confusion_matrix"),
    ),
    Notebook(
        "08b",
        "other_parts",
        "Other parts",
        "training",
        45,
        ("sigmoid_backward_kernel", "squared_error_backward_kernel", "channel_statistics_kernel"),
    ),
    Notebook(
        "09",
        "launches_and_graphs",
        "Make it fast",
        "training",
        85,
        ("bus_bytes", "add_in_streams", "blocks_per_sm", "scale_shift_relu_kernel", "capturable_step"),
    ),
    Notebook(
        "10",
        "mixed_precision",
        "Mixed precision",
        "training",
        70,
        ("decode_float16", "sum_rows_kernel", "stochastic_kernel", "unscale_kernel", "next_scale"),
    ),
    Notebook(
        "10b",
        "tensor_cores",
        "Tensor Cores",
        "training",
        50,
        ("held_by", "warp_product_kernel", "split_tf32", "turns"),
    ),
    Notebook(
        "11",
        "debugging",
        "Debugging GPU code",
        "training",
        75,
        ("edges_kernel", "block_max_kernel", "histogram_kernel"),
    ),
    Notebook(
        "11b",
        "repairing_a_program",
        "Repairing a program",
        "training",
        60,
        ("pool_maps_kernel", "softmax_kernel", "edge_maps", "is_softmax"),
    ),
    Notebook(
        "12",
        "colour_images",
        "A ConvNet for colour images",
        "beyond",
        45,
        ("decayed_step_kernel", "crop_and_flip_kernel", "folded_convolution_kernel"),
    ),
    Notebook(
        "13",
        "sequences",
        "Sequences",
        "beyond",
        60,
        ("lstm_cell_kernel", "last_states", "lstm_cell_backward_kernel", "backward_through_time"),
    ),
    Notebook(
        "13b",
        "attention",
        "Attention",
        "beyond",
        55,
        ("causal_softmax_kernel", "online_step", "tiled_attention_kernel", "softmax_backward_kernel"),
    ),
    Notebook(
        "14",
        "many_gpus",
        "Many GPUs",
        "beyond",
        65,
        ("share_of", "combined_gradient", "ring_all_reduce", "ring_seconds"),
    ),
    Notebook(
        "15",
        "other_roads",
        "Other roads",
        "beyond",
        75,
        ("block_sums_source", "standardise_rows", "pooling_program", "tune"),
    ),
    Notebook(
        "15b",
        "frameworks_and_engines",
        "Frameworks and engines",
        "beyond",
        80,
        ("for_keras", "traffic", "fold_batch_norm", "int8_dense"),
    ),
)


def notebook_on(topic: str) -> Notebook:
    """Return the notebook with this topic."""
    return next(notebook for notebook in NOTEBOOKS if notebook.topic == topic)
