"""What Python runs as it starts in processes that a program under `gpuless` starts: see `sitecustomize`."""
