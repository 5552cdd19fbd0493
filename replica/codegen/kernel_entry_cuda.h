/* Entry points on the GPU: one node a thread, columns of sums [column][node - first].

   With a fixed length the work of a thread lies in its own registers and local memory; with a
   run-time length in global memory, interleaved so that neighbouring threads touch neighbouring
   words. */

#if FIXED_LENGTH
#define MEMORY real memory[(TOKEN_ARRAYS) * TOKENS]; (void)workspace
#else
#define MEMORY real *memory = workspace + (index_t)blockIdx.x * blockDim.x + threadIdx.x
#endif

extern "C" __global__ void replica_sweep(
    index_t first, index_t last, index_t nodes, int length, const scalar *const *fields,
    const scalar *uniform, scalar *state, scalar *norms, scalar *margins, scalar tolerance,
    int steps, scalar close, int mode, scalar *sums, real *workspace) {
    const index_t threads = (index_t)gridDim.x * blockDim.x;
    MEMORY;
    for (index_t n = first + (index_t)blockIdx.x * blockDim.x + threadIdx.x; n < last;
         n += threads)
        process(n, nodes, length, fields, uniform, state, norms, margins, tolerance, steps, close,
                mode, sums + (n - first), last - first, memory);
}

extern "C" __global__ void replica_response(
    index_t first, index_t last, index_t nodes, int length, const scalar *const *fields,
    const scalar *uniform, const scalar *state, scalar *sums, real *workspace) {
    const index_t threads = (index_t)gridDim.x * blockDim.x;
    MEMORY;
    for (index_t n = first + (index_t)blockIdx.x * blockDim.x + threadIdx.x; n < last;
         n += threads)
        respond(n, nodes, length, fields, uniform, state, sums + (n - first), last - first,
                memory);
}
