"""What Python runs at the start of a process whose parent runs under `gpuless`: see `sitecustomize`."""
