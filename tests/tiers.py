"""Two tiers: `make test` proves each feature, `make test-all` repeats the proofs as well.

What repeats is marked `exhaustive` here and nowhere else: further cases of a test whose first ones stay in
`make test`, or a test whose claim others make as well. Each entry says which.
"""

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Repetition:
    """A test, which of its cases `make test` keeps, and what else covers the rest."""

    file: str
    test: str
    covered: str
    kept: object = None
    """A function of the cases' parameters (and of their module, as `tests`); None: no case is kept."""

    def holds(self, item):
        """Return whether an item of this test is a repetition."""
        return self.kept is None or not self.kept(tests=item.module, **item.callspec.params)


def first_of_each(found, answer, **_):
    """Return whether an unusual answer is the first of its exercise."""
    return answer is next(iter(found.right.values()))


def first_of_its_notebook(found, tests):
    """Return the first exercise of the notebook that an exercise is in."""
    return next(each for each in tests.FOUND if each.path == found.path)


def of_wide_and_odd_blocks(block, **_):
    """Return whether a block has rows of a multiple of a warp, or of seven."""
    return block[0] in (64, 7)


def of_notebook(*numbers):
    """Return a function that tells whether a notebook is one of these."""
    return lambda path, **_: path.stem.partition("_")[0] in numbers


REPETITIONS = [
    # --- The course ----------------------------------------------------------------------------------------
    Repetition(
        "course/test_exercises.py",
        "test_wrong_answer_is_rejected_by_name",
        "one of each notebook; every exercise's mistakes are told by name from functions that make them",
        lambda found, answer, tests, **_: answer is first_of_its_notebook(found, tests).wrong[0],
    ),
    *(
        Repetition(
            "course/test_mutants.py",
            f"test_{test}",
            "the first exercise of each notebook; guards and sizes in the wrong answers of others",
            lambda found, tests, **_: found is first_of_its_notebook(found, tests),
        )
        for test in ("a_guard_left_out_is_missed", "a_size_written_as_a_number_is_refused")
    ),
    Repetition(
        "course/test_right_answers.py",
        "test_an_unusual_answer_is_right",
        "the first unusual answer of each exercise",
        first_of_each,
    ),
    Repetition(
        "course/test_notebooks.py",
        "test_runs_as_shipped_with_the_stored_outputs",
        "the first page; cells of the others in each test_notebook.py, solutions in test_exercises.py",
        of_notebook("00"),
    ),
    Repetition(
        "course/test_notebooks.py",
        "test_runs_in_strict_mode_with_every_exercise_solved",
        "the chapter of the first kernels, and each solution in test_exercises.py",
        of_notebook("02"),
    ),
    Repetition(
        "course/test_notebooks.py",
        "test_unsolved_exercises_raise_in_strict_mode",
        "the exercises of kernels; test_exercises.py: each stub, outside a notebook",
        of_notebook("02"),
    ),
    Repetition(
        "course/many_gpus/test_notebook.py",
        "test_a_recorded_training_takes_as_many_steps_again",
        "test_training.py: our losses equal PyTorch's; the same file: how what is recorded is judged",
    ),
    Repetition(
        "course/test_notebooks.py",
        "test_the_first_cells_select_what_kernels_run_on",
        "test_notebook_lint.py: in every notebook the package is imported before numba.cuda",
    ),
    Repetition(
        "course/test_export.py",
        "test_exported_links_lead_to_files_of_the_repository",
        "a short page",
        lambda stem, **_: stem.startswith("11b"),
    ),
    Repetition(
        "course/mnist_cnn/test_network.py",
        "test_a_subtly_wrong_kernel_is_named_before_training",
        "the first and the last kernel of a step, one with an index and the loss",
        lambda name, **_: (
            name in ("conv2d_kernel", "max_pool_backward_kernel", "cross_entropy_kernel", "adam_kernel")
        ),
    ),
    Repetition(
        "course/shared_memory_and_tiling/test_notebook.py",
        "test_kernels_and_solutions_compile_for_a_gpu",
        "test_exercises.py: the solutions, compiled for the emulated GPU",
    ),
    Repetition(
        "course/test_films.py",
        "test_a_film_has_frames_that_differ_and_stays_small",
        "the film of a barrier, and that of a tree, which the other file draws",
        lambda draw, tests, **_: draw is not tests.films.halo_film,
    ),
    Repetition(
        "course/mnist_cnn/test_pad_browser.py",
        "test_a_digit_drawn_in_jupyterlab_is_read_by_the_network",
        "test_book_browser.py: the same pad in a browser; test_journey_browser.py: JupyterLab",
    ),
    # --- Kernels -------------------------------------------------------------------------------------------
    Repetition(
        "ops/test_compile.py",
        "test_a_kernel_compiles_without_spills_and_without_float64",
        "the newest compute capability that a kernel is for; of the kernels that one function makes two",
        lambda module, name, signature, cc, tests, **_: (
            cc == tests.capabilities(module, name)[-1] and tests.stands_for_others((module, name, signature))
        ),
    ),
    Repetition(
        "ops/test_activation_gpu.py",
        "test_large_arrays_against_torch",
        "up to a million elements",
        lambda size, **_: size < 2**24,
    ),
    Repetition(
        "ops/test_conv_gpu.py",
        "test_large_shapes_against_torch",
        "the course's shapes, and unequal windows, strides and borders",
        lambda case, tests, **_: case in (tests.COURSE, tests.GREY) or isinstance(case.stride, tuple),
    ),
    Repetition(
        "ops/test_conv_gpu.py",
        "test_the_sanitizer_finds_nothing_in_products_of_tiles",
        "the narrow tile: one function makes the kernels of all three",
        lambda tile, **_: tile == "narrow",
    ),
    Repetition(
        "ops/test_conv_gpu.py",
        "test_tiles_are_stored_without_bank_conflicts",
        "test_dense_gpu.py: the tiles of products; these can change with the convolutions' kernels only",
    ),
    Repetition(
        "ops/test_loss_gpu.py",
        "test_large_mse_against_torch",
        "up to a million elements",
        lambda shape, **_: shape[-1] < 16_000_003,
    ),
    Repetition(
        "ops/test_pool_gpu.py",
        "test_large_poolings_against_torch",
        "each shape with ties, where it matters which element is taken",
        lambda ties, **_: ties,
    ),
    Repetition(
        "ops/test_precision.py",
        "test_the_sanitizer_finds_nothing",
        "test_dense_tensor.py and test_dense_gpu.py: both engines under the sanitizer",
    ),
    Repetition(
        "ops/test_precision.py",
        "test_the_machine_code_multiplies_on_tensor_cores",
        "test_dense_tensor.py: the instructions of the same engine",
    ),
    Repetition(
        "ops/test_update_gpu.py",
        "test_large_arenas_against_torch",
        "up to 100,003 parameters with all settings",
        lambda size, **_: size < 20_000_001,
    ),
    Repetition(
        "ops/test_jit.py",
        "test_vectors_of_every_width_multiply_alike",
        "test_dense.py: products with the vectors that this processor has",
    ),
    Repetition(
        "ops/test_jit.py",
        "test_vectors_of_every_width_train_alike",
        "test_training.py: trainings with the vectors that this processor has",
    ),
    Repetition(
        "ops/test_dense_gpu.py",
        "test_the_sanitizer_finds_nothing_in_any_rung",
        "each rung with one of its factors transposed",
        lambda transpose, **_: transpose != (True, False),
    ),
    Repetition(
        "ops/test_dense_gpu.py",
        "test_tiles_have_no_bank_conflicts",
        "each kernel with one of its factors transposed",
        lambda transpose, **_: transpose == (True, False),
    ),
    Repetition(
        "ops/test_dense_gpu.py",
        "test_layer_against_torch_at_large_sizes",
        "the course's layers, and the largest with the course's batch",
        lambda batch_size, in_features, **_: batch_size == 64 or in_features < 4096,
    ),
    Repetition(
        "ops/test_dense_gpu.py",
        "test_rungs_against_torch_at_large_sizes",
        "each rung and size with both factors transposed; small sizes with all",
        lambda transpose_a, transpose_b, **_: transpose_a and transpose_b,
    ),
    Repetition(
        "beyond/attention/test_attention_gpu.py",
        "test_the_sanitizer_finds_nothing",
        "the shape with several tiles",
        lambda shape, **_: shape[2] == 34,
    ),
    Repetition(
        "beyond/norm/test_norm_gpu.py",
        "test_large_batch_norms_against_torch",
        "every rung far from zero, where digits are lost, with the course's shape and an odd one",
        lambda offset, shape, **_: offset == 1000 and shape[1] in (32, 7),
    ),
    # --- Data ----------------------------------------------------------------------------------------------
    Repetition(
        "data/test_data.py",
        "test_the_made_pictures_are_the_same_bytes_everywhere",
        "course/colour_images/test_notebook.py draws and loads them, and `load` compares their checksums",
    ),
    Repetition(
        "data/test_digits.py",
        "test_a_photograph_is_read_whatever_the_light_and_whatever_lies_around",
        "every third kind of photograph",
        lambda kind, tests, **_: kind in list(tests.KINDS)[::3],
    ),
    # --- Training ------------------------------------------------------------------------------------------
    Repetition(
        "nn/test_models.py",
        "test_every_product_of_a_model_is_rounded",
        "tf32 in the cpu backend; each operation in every precision and backend in test_precision.py",
        lambda precision, place, **_: (precision, place) == ("tf32", "cpu"),
    ),
    Repetition(
        "train/test_backends.py",
        "test_a_training_follows_that_of_the_cpu_backend_and_its_graph_replays_the_same_bits",
        "the course's network",
        lambda network, **_: network.__name__ == "mnist_cnn",
    ),
    Repetition(
        "train/test_training.py",
        "test_the_first_hundred_losses_on_mnist_equal_pytorchs",
        "the cpu backend, which test_backends.py compares the gpu backend with over a hundred steps",
        lambda place, **_: place == "cpu",
    ),
    Repetition(
        "train/test_graphs.py",
        "test_the_same_seed_gives_the_same_bits_on_the_gpu",
        "test_backends.py: two trainings, one of them of replayed steps, have the same bits",
    ),
    Repetition(
        "train/test_training.py",
        "test_an_interrupt_saves_between_steps_and_resumes_exactly",
        "an interrupt within an epoch and one at its end",
        lambda number, **_: number in (2, 5),
    ),
    Repetition(
        "beyond/test_workers_processes.py",
        "test_a_killed_first_worker_is_named_by_the_others",
        "the worker that is killed under torchrun is named as well",
    ),
    Repetition(
        "beyond/test_workers_processes.py",
        "test_a_hung_worker_is_given_up_by_all_others",
        "the one that is killed under torchrun is given up as well",
    ),
    Repetition(
        "beyond/test_workers_processes.py",
        "test_ctrl_c_on_one_worker_stops_all_after_the_same_step_and_saves",
        "test_workers.py: interrupted workers tell how to go on; test_training.py: an interrupt saves",
    ),
    Repetition(
        "beyond/test_workers_processes.py",
        "test_an_exception_on_one_worker_ends_the_others_with_its_words",
        "test_workers.py: what a worker that ends says to the others; a killed one in processes",
    ),
    Repetition(
        "benchmarks/test_bench.py",
        "test_accuracies_of_both_sides_come_close",
        "the same file: both sides train; test_training.py: our losses equal PyTorch's",
    ),
    Repetition(
        "benchmarks/test_bench_simulator.py",
        "test_the_simulator_is_five_times_faster_than_the_stock_one",
        "the same file: what a thread costs, and how the medians are compared",
    ),
    Repetition(
        "benchmarks/test_bench.py",
        "test_start_up_is_measured_from_empty_caches",
        "test_each_run_of_start_up_is_recorded_and_the_first_has_empty_caches",
    ),
    # --- gpuless -------------------------------------------------------------------------------------------
    Repetition(
        "test_gpuless_alone.py",
        "test_gpuless_passes_its_tests_where_the_course_is_not",
        "test_house.py: gpuless knows nothing of the course; test_wheels.py: its wheel holds all of it",
    ),
    Repetition(
        "gpuless/test_emulator_driver.py",
        "test_pytorch_stays_on_the_cpu",
        "PyTorch imported first, which finds the libraries as they were",
        lambda first, **_: first == "torch",
    ),
    Repetition(
        "gpuless/test_emulator_warps.py",
        "test_vector_loads_and_stores",
        "each form where some lanes are off",
        lambda masked, **_: masked,
    ),
    Repetition(
        "gpuless/test_simulator_scheduler.py",
        "test_torch_tensors_on_the_host_are_refused",
        "the same file: what else no GPU could take is refused by its type",
    ),
    Repetition(
        "gpuless/test_simulator.py",
        "test_in_a_process_with_the_simulator",
        "test_sanitizer.py and test_access.py step the same Python; `GPULESS=simulator make test` runs these",
    ),
    Repetition(
        "gpuless/test_arithmetic.py",
        "test_of_one_number",
        "a narrow integer and a float: the other types have the same rules",
        lambda dtype, **_: dtype in ("uint8", "float32"),
    ),
    Repetition(
        "gpuless/test_arithmetic.py",
        "test_of_two_numbers",
        "integers alike and of both signs, and an integer with a float",
        lambda one, other, **_: (
            (one, other) in (("uint8", "uint8"), ("int64", "uint64"), ("float32", "int32"))
        ),
    ),
    Repetition(
        "gpuless/test_simulator_constructs.py",
        "test_the_table_is_what_the_compiler_says",
        "the table's effects; it can change with a version of Numba only",
    ),
    Repetition(
        "gpuless/test_simulator_arithmetic.py",
        "test_numba_types_operators_for_a_cpu_as_for_a_gpu",
        "each operator's types and values, from the compiler; it can change with a version of Numba only",
    ),
    Repetition(
        "gpuless/test_emulator_flow.py",
        "test_random_programs",
        "the programs of eight warps, and of a block with planes",
        lambda shape, tests, **_: shape in tests.SHAPES[4::2],
    ),
    Repetition(
        "gpuless/test_emulator_waits.py",
        "test_random_programs",
        "the first 50 of 2,000",
        lambda part, **_: part == 0,
    ),
    Repetition(
        "gpuless/test_emulator_strides.py",
        "test_however_the_address_is_computed",
        "blocks with rows as wide as a warp and with odd ones",
        of_wide_and_odd_blocks,
    ),
    Repetition(
        "gpuless/test_emulator_strides.py",
        "test_lanes_far_apart",
        "blocks with rows as wide as a warp and with odd ones",
        of_wide_and_odd_blocks,
    ),
    Repetition(
        "gpuless/test_inspector.py",
        "test_a_file_may_have_any_name",
        "a file with dots and a dash in its name",
        lambda file, **_: file == "my-kernels.v2.py",
    ),
    Repetition(
        "gpuless/test_conformance.py",
        "test_the_outcome_of_a_sample_is_as_listed",
        "the tests of the emulator; `make conformance` runs all of numba-cuda's",
    ),
    # --- The command line ----------------------------------------------------------------------------------
    Repetition(
        "cli/test_resume.py",
        "test_options_that_contradict_the_checkpoint_are_refused",
        "an option of each kind: a number, the network, and several at once",
        lambda options, **_: options[0] in ("--lr", "--model", "--optimizer"),
    ),
    # --- The repository ------------------------------------------------------------------------------------
    Repetition(
        "test_environment.py",
        "test_what_make_installed_is_out_of_date_when_a_project_changes",
        "the project that the other one is beside",
        lambda changed, **_: changed != "pyproject.toml",
    ),
    Repetition(
        "test_environment.py",
        "test_another_cuda_is_installed_anew",
        "the two stages: what they install is remembered",
    ),
    Repetition(
        "test_environment.py",
        "test_make_installs_in_two_stages_in_any_order",
        "the default toolkit",
        lambda cuda, **_: cuda == (),
    ),
]
_BY_TEST = {(FOLDER / each.file, each.test): each for each in REPETITIONS}


def repeats(item):
    """Return whether a collected test is a repetition."""
    found = _BY_TEST.get((item.path, getattr(item, "originalname", None)))
    return found is not None and found.holds(item)
