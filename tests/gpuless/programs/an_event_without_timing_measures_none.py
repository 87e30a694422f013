"""An event without timing measures none."""

from emulated import cuda

with_time, without = cuda.event(), cuda.event(timing=False)
for event in (with_time, without):
    event.record()
without.synchronize()
for pair in ((with_time, without), (without, with_time), (without, without)):
    try:
        cuda.event_elapsed_time(*pair)
    except Exception as error:
        print("CUDA_ERROR_INVALID_HANDLE" in str(error))
print(cuda.event_elapsed_time(with_time, with_time))
