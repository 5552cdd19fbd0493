/* Entry points on the CPU: blocks first..last-1, one after another. */

/* Bytes of memory that one thread needs. */
index_t replica_workspace(int length) {
    return (index_t)sizeof(real) * AT(length) * TOKEN_ARRAYS + 64;
}

static real *aligned(char *memory) {
    return (real *)(((uintptr_t)memory + sizeof(real) - 1) / sizeof(real) * sizeof(real));
}

void replica_sweep(index_t first, index_t last, index_t nodes, int length,
                   const scalar *const *fields, const scalar *uniform, scalar *state,
                   scalar *norms, scalar *margins, scalar tolerance, int steps, scalar close,
                   int mode, scalar *sums, char *memory) {
    for (index_t n = first; n < last; ++n)
        process(n * LANES, nodes, length, fields, uniform, state, norms, margins, tolerance, steps,
                close, mode, sums + (n - first) * (AVERAGES + 4), 1, aligned(memory));
}

void replica_response(index_t first, index_t last, index_t nodes, int length,
                      const scalar *const *fields, const scalar *uniform, const scalar *state,
                      scalar *sums, char *memory) {
    for (index_t n = first; n < last; ++n)
        respond(n * LANES, nodes, length, fields, uniform, state,
                sums + (n - first) * SECTORS * SECTORS, 1, aligned(memory));
}
