"""Benchmarks of the package, compared with PyTorch, and the records that they write.

A benchmark is a function ``bench_NAME`` that returns `records.new_record`. Its command is in
`benchmarks.commands`, where ``--json`` writes the record; its tests are in ``tests/benchmarks``. `rungs` has
simpler kernels than the package's, to compare with.
"""
