"""What the package is measured with, beside PyTorch: the code, and the records that it writes.

A benchmark is a function ``bench_NAME`` that returns `records.new_record`; its command is in
`benchmarks.commands`, whose ``--json`` writes the record, its tests are in ``tests/benchmarks``. What the
package's kernels are compared with, rungs that it does not run itself, is in `rungs`.
"""
