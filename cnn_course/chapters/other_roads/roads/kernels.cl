// The yardstick of notebook 25 in OpenCL C: images of one channel, kernels of 3 x 3, float32 throughout.

#define TAPS 3
#define TILE 16
#define PATCH (TILE + TAPS - 1)
#define GROUP 128

// A work-group computes TILE x TILE places of one image in all channels; the image's pixels are loaded once.
__kernel void conv_forward(__global const float *x, __global const float *weight, __global const float *bias,
                           __global float *out, int height, int width, int channels, int relu) {
    __local float patch[PATCH][PATCH];
    int tx = get_local_id(0), ty = get_local_id(1), n = get_group_id(2);
    int left = get_group_id(0) * TILE, top = get_group_id(1) * TILE;
    for (int k = ty * TILE + tx; k < PATCH * PATCH; k += TILE * TILE) {
        int h = top + k / PATCH, w = left + k % PATCH;
        patch[k / PATCH][k % PATCH] = h < height && w < width ? x[(n * height + h) * width + w] : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    int out_h = height - TAPS + 1, out_w = width - TAPS + 1, oh = top + ty, ow = left + tx;
    if (oh >= out_h || ow >= out_w) return;
    for (int oc = 0; oc < channels; oc++) {
        float total = bias[oc];
        for (int i = 0; i < TAPS; i++)
            for (int j = 0; j < TAPS; j++)
                total += patch[ty + i][tx + j] * weight[(oc * TAPS + i) * TAPS + j];
        out[((n * channels + oc) * out_h + oh) * out_w + ow] = relu && total < 0.0f ? 0.0f : total;
    }
}

// A work-group sums up one weight's gradient, and for the tap after the last, that of the bias.
__kernel void conv_grad_weight(__global const float *grad, __global const float *x,
                               __global float *grad_weight, __global float *grad_bias, int batch,
                               int height, int width, int channels) {
    __local float partial[GROUP];
    int t = get_local_id(0), tap = get_group_id(0), oc = get_group_id(1);
    int out_w = width - TAPS + 1, places = (height - TAPS + 1) * out_w;
    int is_bias = tap == TAPS * TAPS, start = tap / TAPS * width + tap % TAPS;
    float total = 0.0f;
    for (int i = t; i < batch * places; i += GROUP) {
        int n = i / places, place = i % places;
        int pixel = n * height * width + place / out_w * width + place % out_w + start;
        total += grad[(n * channels + oc) * places + place] * (is_bias ? 1.0f : x[pixel]);
    }
    partial[t] = total;
    for (int half_size = GROUP / 2; half_size > 0; half_size /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (t < half_size) partial[t] += partial[t + half_size];
    }
    if (t == 0 && is_bias) grad_bias[oc] = partial[0];
    if (t == 0 && !is_bias) grad_weight[oc * TAPS * TAPS + tap] = partial[0];
}

// One pixel's gradient a work-item: what every window that it was in sends back.
__kernel void conv_grad_input(__global const float *grad, __global const float *weight,
                              __global float *grad_input, int height, int width, int channels) {
    int w = get_global_id(0), h = get_global_id(1), n = get_global_id(2);
    int out_h = height - TAPS + 1, out_w = width - TAPS + 1;
    if (w >= width || h >= height) return;
    float total = 0.0f;
    for (int oc = 0; oc < channels; oc++)
        for (int i = 0; i < TAPS; i++)
            for (int j = 0; j < TAPS; j++) {
                int oh = h - i, ow = w - j;
                if (oh >= 0 && oh < out_h && ow >= 0 && ow < out_w)
                    total += grad[((n * channels + oc) * out_h + oh) * out_w + ow] *
                             weight[(oc * TAPS + i) * TAPS + j];
            }
    grad_input[(n * height + h) * width + w] = total;
}

// A work-group computes TILE x TILE results.
// With two strides, a matrix can be taken transposed.
__kernel void product(
    __global const float *a, int a_row, int a_column,
    __global const float *b, int b_row, int b_column,
    __global float *out, int m, int n, int depth) {
    __local float a_tile[TILE][TILE];
    __local float b_tile[TILE][TILE];
    int tx = get_local_id(0), ty = get_local_id(1);
    int column = get_global_id(0), row = get_global_id(1);
    float total = 0.0f;
    for (int start = 0; start < depth; start += TILE) {
        int x = start + tx, y = start + ty;
        bool a_there = row < m && x < depth;
        a_tile[ty][tx] = a_there ? a[row * a_row + x * a_column] : 0.0f;
        bool b_there = y < depth && column < n;
        b_tile[ty][tx] = b_there ? b[y * b_row + column * b_column] : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < TILE; k++)
            total += a_tile[ty][k] * b_tile[k][tx];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (row < m && column < n) out[row * n + column] = total;
}

// One image a work-item: the loss, and the gradient of the mean loss.
__kernel void cross_entropy(__global const float *logits, __global const float *bias,
                            __global const int *labels, __global float *losses, __global float *grad,
                            int batch, int classes) {
    int n = get_global_id(0);
    if (n >= batch) return;
    float largest = logits[n * classes] + bias[0], total = 0.0f;
    for (int k = 1; k < classes; k++) largest = fmax(largest, logits[n * classes + k] + bias[k]);
    for (int k = 0; k < classes; k++) total += exp(logits[n * classes + k] + bias[k] - largest);
    for (int k = 0; k < classes; k++) {
        float share = exp(logits[n * classes + k] + bias[k] - largest) / total;
        grad[n * classes + k] = (share - (k == labels[n] ? 1.0f : 0.0f)) / batch;
    }
    losses[n] = log(total) + largest - logits[n * classes + labels[n]] - bias[labels[n]];
}

// One number a work-item: no gradient where nothing came through.
__kernel void relu_backward(__global const float *out, __global float *gradient, int size) {
    int i = get_global_id(0);
    if (i < size && out[i] <= 0.0f) gradient[i] = 0.0f;
}

// One parameter a work-item.
__kernel void sgd(__global float *parameters, __global const float *gradient, float rate, int size) {
    int i = get_global_id(0);
    if (i < size) parameters[i] -= rate * gradient[i];
}
