// Products of matrices of float16 on the Tensor Cores: C (float32) = A (m x k) times B (k x n), all by rows.
// A block of four warps computes 64 x 64 numbers, a warp 32 x 32, of which it keeps 2 x 4 tiles of 16 x 8.

const int TILE = 64, DEPTH = 32, PAD = 8;

struct Tiles {
    unsigned short a[2][TILE][DEPTH + PAD], b[2][DEPTH][TILE + PAD];
};

__device__ unsigned address(const void *pointer) { return (unsigned)__cvta_generic_to_shared(pointer); }

__device__ void copy16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address(to)), "l"(from));
}

// `thread` of `count` threads copies its part of the tiles that begin at column k of A and row k of B.
__device__ void load(Tiles &tiles, int stage, const unsigned short *a, const unsigned short *b, int n, int depth,
                     int k, int thread, int count) {
    for (int i = thread; i < TILE * DEPTH / 8; i += count) {
        int row = i / (DEPTH / 8), column = i % (DEPTH / 8) * 8;
        copy16(&tiles.a[stage][row][column], &a[(blockIdx.y * TILE + row) * depth + k + column]);
        row = i / (TILE / 8), column = i % (TILE / 8) * 8;
        copy16(&tiles.b[stage][row][column], &b[(k + row) * n + blockIdx.x * TILE + column]);
    }
}

__device__ void multiply(const Tiles &tiles, int stage, int warp, float c[2][4][4]) {
    int lane = threadIdx.x % 32, top = warp / 2 * 32, left = warp % 2 * 32;
    for (int k = 0; k < DEPTH; k += 16) {
        unsigned a[2][4], b[4][2];
        for (int i = 0; i < 2; i++)
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(a[i][0]), "=r"(a[i][1]), "=r"(a[i][2]), "=r"(a[i][3])
                         : "r"(address(&tiles.a[stage][top + 16 * i + lane % 16][k + lane / 16 * 8])));
        for (int j = 0; j < 4; j++)
            asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                         : "=r"(b[j][0]), "=r"(b[j][1])
                         : "r"(address(&tiles.b[stage][k + lane % 16][left + 8 * j])));
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 4; j++)
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                             "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                             : "+f"(c[i][j][0]), "+f"(c[i][j][1]), "+f"(c[i][j][2]), "+f"(c[i][j][3])
                             : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j][0]), "r"(b[j][1]));
    }
}

__device__ void store(float *c, int n, int warp, float sum[2][4][4]) {
    int lane = threadIdx.x % 32;
    int top = blockIdx.y * TILE + warp / 2 * 32 + lane / 4, left = blockIdx.x * TILE + warp % 2 * 32 + lane % 4 * 2;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int at = 0; at < 4; at++)
                c[(top + 16 * i + at / 2 * 8) * n + left + 8 * j + at % 2] = sum[i][j][at];
}

// All four warps copy the next tiles while they multiply these.
extern "C" __global__ void double_buffered(const unsigned short *a, const unsigned short *b, float *c, int n, int depth) {
    __shared__ __align__(16) Tiles tiles;
    float sum[2][4][4] = {};
    load(tiles, 0, a, b, n, depth, 0, threadIdx.x, blockDim.x);
    asm volatile("cp.async.commit_group;");
    for (int k = 0, stage = 0; k < depth; k += DEPTH, stage ^= 1) {
        if (k + DEPTH < depth) {
            load(tiles, stage ^ 1, a, b, n, depth, k + DEPTH, threadIdx.x, blockDim.x);
            asm volatile("cp.async.commit_group;");
            asm volatile("cp.async.wait_group 1;");
        } else {
            asm volatile("cp.async.wait_group 0;");
        }
        __syncthreads();
        multiply(tiles, stage, threadIdx.x / 32, sum);
        __syncthreads();
    }
    store(c, n, threadIdx.x / 32, sum);
}

__device__ void arrive(unsigned long long *barrier) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(address(barrier)) : "memory");
}

__device__ void wait(unsigned long long *barrier, unsigned parity) {
    asm volatile("{\n.reg .pred done;\nAGAIN:\n"
#if __CUDA_ARCH__ >= 900
                 "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
#else
                 "mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
#endif
                 "@!done bra AGAIN;\n}" ::"r"(address(barrier)), "r"(parity) : "memory");
}

// A fifth warp copies, the four others multiply; they wait for each other at barriers in memory.
extern "C" __global__ void specialised(const unsigned short *a, const unsigned short *b, float *c, int n, int depth) {
    __shared__ __align__(16) Tiles tiles;
    __shared__ unsigned long long full[2], empty[2];
    int warp = threadIdx.x / 32;
    if (threadIdx.x < 2) {
        asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(address(&full[threadIdx.x])));
        asm volatile("mbarrier.init.shared.b64 [%0], 128;" ::"r"(address(&empty[threadIdx.x])));
    }
    __syncthreads();
    if (warp == 4) {
        for (int k = 0, i = 0; k < depth; k += DEPTH, i++) {
            wait(&empty[i % 2], i / 2 % 2 ^ 1);
            load(tiles, i % 2, a, b, n, depth, k, threadIdx.x % 32, 32);
            asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address(&full[i % 2])) : "memory");
        }
    } else {
        float sum[2][4][4] = {};
        for (int k = 0, i = 0; k < depth; k += DEPTH, i++) {
            wait(&full[i % 2], i / 2 % 2);
            multiply(tiles, i % 2, warp, sum);
            arrive(&empty[i % 2]);
        }
        store(c, n, warp, sum);
    }
}
