// An article's program, repaired: the kind of edge at each place of an image. Every thread computes one place
// of the output, first checks that the place exists, and writes nothing else.

const int FILTERS = 4, TAPS = 3;

// A place of the maps a thread: the image under each filter.
extern "C" __global__ void conv(const float *image, const float *weight, float *maps, int height, int width) {
    int out_h = height - TAPS + 1, out_w = width - TAPS + 1;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= out_h * out_w) return;
    for (int f = 0; f < FILTERS; f++) {
        float total = 0;
        for (int k = 0; k < TAPS * TAPS; k++)
            total += image[(i / out_w + k / TAPS) * width + i % out_w + k % TAPS] *
                     weight[f * TAPS * TAPS + k];
        maps[f * out_h * out_w + i] = total;
    }
}

// A place of the pooled maps a thread: the largest of each 2 x 2; an odd last row or column is left out.
extern "C" __global__ void max_pool(const float *maps, float *pooled, int channels, int height, int width) {
    int out_w = width / 2, places = height / 2 * out_w, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= channels * places) return;
    const float *corner = maps + (i / places * height + i % places / out_w * 2) * width + i % out_w * 2;
    pooled[i] = fmaxf(fmaxf(corner[0], corner[1]), fmaxf(corner[width], corner[width + 1]));
}

// A place a thread: its numbers over the filters become probabilities.
extern "C" __global__ void softmax(const float *pooled, float *out, int places) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= places) return;
    float largest = pooled[i], total = 0;
    for (int f = 1; f < FILTERS; f++) largest = fmaxf(largest, pooled[f * places + i]);
    for (int f = 0; f < FILTERS; f++) total += expf(pooled[f * places + i] - largest);
    for (int f = 0; f < FILTERS; f++) out[f * places + i] = expf(pooled[f * places + i] - largest) / total;
}
