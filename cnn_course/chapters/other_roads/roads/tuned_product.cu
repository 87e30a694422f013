// The product of two matrices by rows, out (m x n) = a (m x depth) times b (depth x n), in tiles of any size.
// The names in capitals are defined at compilation: one program for each choice.

const int DOWN = TILE_M / PER_M, ACROSS = TILE_N / PER_N, THREADS = DOWN * ACROSS;

// A block computes TILE_M x TILE_N results, a thread PER_M x PER_N of them, in registers.
extern "C" __global__ void product(const float *a, const float *b, float *out, int m, int n, int depth) {
    __shared__ float a_tile[TILE_K][TILE_M], b_tile[TILE_K][TILE_N];
    int thread = threadIdx.x, x = thread % ACROSS, y = thread / ACROSS;
    int top = blockIdx.y * TILE_M, left = blockIdx.x * TILE_N;
    float sum[PER_M][PER_N] = {};
    for (int start = 0; start < depth; start += TILE_K) {
        for (int round = 0; round < TILE_M * TILE_K / THREADS; round++) {
            int i = round * THREADS + thread, row = top + i / TILE_K, k = start + i % TILE_K;
            a_tile[i % TILE_K][i / TILE_K] = row < m && k < depth ? a[row * depth + k] : 0;
        }
        for (int round = 0; round < TILE_N * TILE_K / THREADS; round++) {
            int i = round * THREADS + thread, k = start + i / TILE_N, column = left + i % TILE_N;
            b_tile[i / TILE_N][i % TILE_N] = k < depth && column < n ? b[k * n + column] : 0;
        }
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < TILE_K; k++)
            for (int i = 0; i < PER_M; i++)
                for (int j = 0; j < PER_N; j++)
                    sum[i][j] += a_tile[k][y + i * DOWN] * b_tile[k][x + j * ACROSS];
        __syncthreads();
    }
    for (int i = 0; i < PER_M; i++)
        for (int j = 0; j < PER_N; j++) {
            int row = top + y + i * DOWN, column = left + x + j * ACROSS;
            if (row < m && column < n) out[row * n + column] = sum[i][j];
        }
}
