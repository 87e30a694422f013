// The yardstick of notebook 25 in CUDA C++: images of one channel, kernels of 3 x 3, float32 throughout.

const int TAPS = 3, TILE = 16, THREADS = 128, WARP = 32;

// What C++ adds: the same sum for any block, made by the compiler for the one that is asked for.
template <int COUNT> __device__ float block_sum(float value) {
    __shared__ float of_warps[COUNT / WARP];
    for (int step = WARP / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
    if (threadIdx.x % WARP == 0) of_warps[threadIdx.x / WARP] = value;
    __syncthreads();
    float total = 0;
    for (int warp = 0; warp < COUNT / WARP; warp++) total += of_warps[warp];
    return total;
}

// A matrix that is taken as it is, or transposed.
struct Matrix {
    const float *data;
    int row_stride, column_stride;
    __device__ float operator()(int row, int column) const {
        return data[row * row_stride + column * column_stride];
    }
};

// One output per thread; x along a row, z through images and channels.
extern "C" __global__ void conv_forward(const float *x, const float *weight, const float *bias, float *out,
                                        int height, int width, int channels, bool relu) {
    int ow = blockIdx.x * blockDim.x + threadIdx.x, oh = blockIdx.y * blockDim.y + threadIdx.y;
    int n = blockIdx.z / channels, oc = blockIdx.z % channels;
    int out_h = height - TAPS + 1, out_w = width - TAPS + 1;
    if (oh >= out_h || ow >= out_w) return;
    float total = bias[oc];
    for (int i = 0; i < TAPS; i++)
        for (int j = 0; j < TAPS; j++)
            total += x[(n * height + oh + i) * width + ow + j] * weight[(oc * TAPS + i) * TAPS + j];
    out[(blockIdx.z * out_h + oh) * out_w + ow] = relu ? fmaxf(total, 0) : total;
}

// A block sums up one weight's gradient, and for the tap after the last, that of the bias.
extern "C" __global__ void conv_grad_weight(const float *grad, const float *x, float *grad_weight,
                                            float *grad_bias, int batch, int height, int width,
                                            int channels) {
    int tap = blockIdx.x, oc = blockIdx.y, out_w = width - TAPS + 1, places = (height - TAPS + 1) * out_w;
    bool is_bias = tap == TAPS * TAPS;
    float total = 0;
    for (int i = threadIdx.x; i < batch * places; i += THREADS) {
        int n = i / places, place = i % places;
        int h = place / out_w + tap / TAPS, w = place % out_w + tap % TAPS;
        total += grad[(n * channels + oc) * places + place] * (is_bias ? 1 : x[(n * height + h) * width + w]);
    }
    total = block_sum<THREADS>(total);
    if (threadIdx.x == 0) (is_bias ? grad_bias[oc] : grad_weight[oc * TAPS * TAPS + tap]) = total;
}

// One pixel's gradient per thread: what every window that it was in sends back.
extern "C" __global__ void conv_grad_input(const float *grad, const float *weight, float *grad_input,
                                           int height, int width, int channels) {
    int w = blockIdx.x * blockDim.x + threadIdx.x, h = blockIdx.y * blockDim.y + threadIdx.y, n = blockIdx.z;
    int out_h = height - TAPS + 1, out_w = width - TAPS + 1;
    if (w >= width || h >= height) return;
    float total = 0;
    for (int oc = 0; oc < channels; oc++)
        for (int oh = max(h - TAPS + 1, 0); oh < min(h + 1, out_h); oh++)
            for (int ow = max(w - TAPS + 1, 0); ow < min(w + 1, out_w); ow++)
                total += grad[((n * channels + oc) * out_h + oh) * out_w + ow] *
                         weight[(oc * TAPS + h - oh) * TAPS + w - ow];
    grad_input[(n * height + h) * width + w] = total;
}

// A block computes TILE x TILE results.
extern "C" __global__ void product(const float *a_data, int a_row, int a_column, const float *b_data,
                                   int b_row, int b_column, float *out, int m, int n, int depth) {
    Matrix a = {a_data, a_row, a_column}, b = {b_data, b_row, b_column};
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y, column = blockIdx.x * TILE + tx, row = blockIdx.y * TILE + ty;
    float total = 0;
    for (int start = 0; start < depth; start += TILE) {
        a_tile[ty][tx] = row < m && start + tx < depth ? a(row, start + tx) : 0;
        b_tile[ty][tx] = start + ty < depth && column < n ? b(start + ty, column) : 0;
        __syncthreads();
        for (int k = 0; k < TILE; k++) total += a_tile[ty][k] * b_tile[k][tx];
        __syncthreads();
    }
    if (row < m && column < n) out[row * n + column] = total;
}

// One image per thread: the loss, and the gradient of the mean loss.
extern "C" __global__ void cross_entropy(const float *logits, const float *bias, const int *labels,
                                         float *losses, float *grad, int batch, int classes) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= batch) return;
    auto score = [=](int k) { return logits[n * classes + k] + bias[k]; };
    float largest = score(0), total = 0;
    for (int k = 1; k < classes; k++) largest = fmaxf(largest, score(k));
    for (int k = 0; k < classes; k++) total += expf(score(k) - largest);
    for (int k = 0; k < classes; k++)
        grad[n * classes + k] = (expf(score(k) - largest) / total - (k == labels[n] ? 1 : 0)) / batch;
    losses[n] = logf(total) + largest - score(labels[n]);
}

// One number per thread: no gradient where nothing came through.
extern "C" __global__ void relu_backward(const float *out, float *gradient, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size && out[i] <= 0) gradient[i] = 0;
}

// One parameter per thread.
extern "C" __global__ void sgd(float *parameters, const float *gradient, float rate, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) parameters[i] -= rate * gradient[i];
}
