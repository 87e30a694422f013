"""The checks of notebook 17, ``17_tensor_cores``: the exercises and their files.

1. `held_by`: products.py
2. `nearest_tf32`: nearest_tf32.py
3. `warp_product_kernel`: products.py
4. `split_tf32`: products.py
"""

from cnn_course.chapters.tensor_cores.exercises.nearest_tf32 import nearest_tf32
from cnn_course.chapters.tensor_cores.exercises.products import held_by, split_tf32, warp_product_kernel

__all__ = ["held_by", "nearest_tf32", "split_tf32", "warp_product_kernel"]
