"""A graph of cuda.core."""

import numpy as np
from cuda.core import Device, LaunchConfig
from cuda.core.graph import GraphDefinition
from nodes import kernel, read

device = Device()
device.set_current()
stream, buffers = device.create_stream(), []
for _ in range(2):
    buffers.append(device.allocate(128, stream=stream))
definition = GraphDefinition()
node = definition.memset(buffers[0], 0, 128)
node = node.launch(LaunchConfig(grid=1, block=32), kernel, buffers[0], np.float32(3))
node = node.memcpy(buffers[1], buffers[0], 128).callback(lambda: print("called"))
print(len(definition.nodes()), len(definition.edges()), [type(each).__name__ for each in node.pred])
definition.instantiate().launch(stream)
stream.sync()
print(read(buffers[1].handle).tolist() == [3] * 32)
