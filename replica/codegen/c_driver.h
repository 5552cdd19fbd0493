/* The minimisation and the sweep over nodes, the same for every model.

   Generated above this text: LANES, struct block with its buffers, load_block, cavity_at,
   proximal_at, readout_at, averages_at, AVERAGES, HAS_PROXIMAL and V_ATTENTION. */

#define MINIMISE 1
#define SEARCH 2
#define AVERAGE 4
#define SEARCHED_TOKENS 6

static const double search_shifts[4] = {2.0, -2.0, 3.0, -3.0};

#if HAS_PROXIMAL

/* Largest gradient entry of each lane, relative to the size of the displacement. */
static void gradient_size(const double *restrict g, const double *restrict d, int L,
                          double *restrict size) {
    double slope[LANES] = {0}, extent[LANES] = {0};
    for (int l = 0; l < L; ++l) {
        VECTOR
        for (int i = 0; i < LANES; ++i) {
            const double a = fabs(g[l * LANES + i]), b = fabs(d[l * LANES + i]);
            slope[i] = a > slope[i] || a != a ? a : slope[i];
            extent[i] = b > extent[i] ? b : extent[i];
        }
    }
    for (int i = 0; i < LANES; ++i) size[i] = slope[i] / (1.0 + extent[i]);
}

/* Levenberg-damped Gauss-Newton with rank-one curvature, on all lanes until the slowest is done.
   work: 5 * L * LANES doubles. */
static void local_minimum(const struct block *b, double *restrict d, double *restrict objective,
                          double *restrict norm, double tolerance, int steps,
                          double *restrict work) {
    const int L = b->L, size = L * LANES;
    const double V = V_ATTENTION(b);
    double *g = work, *u = g + size, *trial = u + size, *g2 = trial + size, *u2 = g2 + size;
    double damping[LANES] = {0};
    double objective2[LANES], norm2[LANES];
    proximal_at(b, d, objective, g, u);
    gradient_size(g, d, L, norm);
    for (int step = 0; step < steps; ++step) {
        int active = 0;
        for (int i = 0; i < LANES; ++i) active |= norm[i] > tolerance;
        if (!active) return;
        double slope[LANES] = {0}, square[LANES] = {0}, scale[LANES], inner[LANES];
        for (int l = 0; l < L; ++l) {
            VECTOR
            for (int i = 0; i < LANES; ++i) {
                slope[i] += u[l * LANES + i] * g[l * LANES + i];
                square[i] += u[l * LANES + i] * u[l * LANES + i];
            }
        }
        for (int i = 0; i < LANES; ++i) {
            scale[i] = 1.0 / (1.0 + damping[i] * V);
            inner[i] = scale[i] * V * slope[i] / (1.0 + scale[i] * V * square[i]);
        }
        for (int l = 0; l < L; ++l) {
            VECTOR
            for (int i = 0; i < LANES; ++i) {
                const int k = l * LANES + i;
                trial[k] = d[k] - scale[i] * (g[k] - u[k] * inner[i]);
            }
        }
        proximal_at(b, trial, objective2, g2, u2);
        gradient_size(g2, trial, L, norm2);
        int64_t better[LANES];
        for (int i = 0; i < LANES; ++i) {
            const double slack = 1e-14 * (1.0 + fabs(objective[i]));
            const int moving = norm[i] > tolerance;
            better[i] = moving && (objective2[i] < objective[i] - slack ||
                                   (objective2[i] <= objective[i] + slack && norm2[i] <= norm[i]));
            const double relaxed = damping[i] < 1e-3 / V ? 0.0 : 0.2 * damping[i];
            const double firmer = 5.0 * damping[i] > 1.0 / V ? 5.0 * damping[i] : 1.0 / V;
            damping[i] = better[i] ? relaxed : firmer;
            objective[i] = better[i] ? objective2[i] : objective[i];
            norm[i] = better[i] ? norm2[i] : norm[i];
        }
        for (int l = 0; l < L; ++l) {
            VECTOR
            for (int i = 0; i < LANES; ++i) {
                const int k = l * LANES + i;
                d[k] = better[i] ? trial[k] : d[k];
                g[k] = better[i] ? g2[k] : g[k];
                u[k] = better[i] ? u2[k] : u[k];
            }
        }
    }
}

/* Whether two displacements of a lane differ as arguments. */
static void distinct(const double *restrict a, const double *restrict b, int L, int *restrict out) {
    double gap[LANES] = {0}, extent[LANES] = {0};
    for (int l = 0; l < L; ++l) {
        VECTOR
        for (int i = 0; i < LANES; ++i) {
            const double x = fabs(a[l * LANES + i] - b[l * LANES + i]), y = fabs(a[l * LANES + i]);
            gap[i] = x > gap[i] ? x : gap[i];
            extent[i] = y > extent[i] ? y : extent[i];
        }
    }
    for (int i = 0; i < LANES; ++i) out[i] = gap[i] > 1e-3 * (1.0 + extent[i]);
}

/* The unused token with the largest readout cavity field, per lane; it is used from then on. */
static void next_token(const double *restrict w, int L, int *restrict chosen,
                       char *restrict used) {
    for (int i = 0; i < LANES; ++i) {
        int best = -1;
        for (int l = 0; l < L; ++l) {
            if (used[l * LANES + i]) continue;
            if (best < 0 || fabs(w[l * LANES + i]) > fabs(w[best * LANES + i])) best = l;
        }
        used[best * LANES + i] = 1;
        chosen[i] = best;
    }
}

/* Global minimum over several starts. Counts lanes that moved and lanes with a close rival. */
static void global_minimum(const struct block *b, double *restrict d, double *restrict objective,
                           double *restrict norm, double tolerance, int steps, double close,
                           int64_t *moved, int64_t *competing, double *restrict work) {
    const int L = b->L, size = L * LANES;
    const double V = V_ATTENTION(b), coarse = tolerance > 1e-7 ? tolerance : 1e-7;
    double *before = work + 5 * size, *other = before + size;
    double rival[LANES], objective2[LANES], norm2[LANES];
    int differs[LANES], token[LANES];
    char *used = (char *)(other + size);
    memset(used, 0, size);
    memcpy(before, d, size * sizeof(double));
    for (int i = 0; i < LANES; ++i) rival[i] = HUGE_VAL;
    const int tokens = L < SEARCHED_TOKENS ? L : SEARCHED_TOKENS;
    for (int start = 0; start < 1 + 4 * tokens; ++start) {
        memset(other, 0, size * sizeof(double));
        if (start > 0) {
            if ((start - 1) % 4 == 0)
                next_token(READOUT_CAVITY(b), L, token, used);
            for (int i = 0; i < LANES; ++i)
                other[token[i] * LANES + i] = search_shifts[(start - 1) % 4] / V;
        }
        local_minimum(b, other, objective2, norm2, coarse, 5 * steps, work);
        distinct(d, other, L, differs);
        for (int i = 0; i < LANES; ++i) {
            if (!differs[i]) continue;
            if (objective2[i] < objective[i] - 1e-9 * (1.0 + fabs(objective[i]))) {
                rival[i] = objective[i];
                objective[i] = objective2[i];
                norm[i] = norm2[i];
                for (int l = 0; l < L; ++l) d[l * LANES + i] = other[l * LANES + i];
            } else if (norm2[i] < 1e-4 && objective2[i] < rival[i]) {
                rival[i] = objective2[i];
            }
        }
    }
    distinct(before, d, L, differs);
    int any = 0;
    for (int i = 0; i < LANES; ++i) any |= differs[i];
    if (any) local_minimum(b, d, objective, norm, tolerance, steps, work);
    for (int i = 0; i < LANES; ++i) {
        *moved += differs[i];
        *competing += rival[i] - objective[i] < close;
    }
}

#endif

/* Bytes of memory that replica_sweep needs for one thread. */
int64_t replica_workspace(int L) {
    return (int64_t)sizeof(double) * LANES * L * (BUFFERS + SCRATCH + 8) + 4096;
}

/* Process the nodes of blocks first..last-1. Arrays are [token][node] with `nodes` columns.
   sums: [block - first][AVERAGES]; counts: moved, competing. */
void replica_sweep(int64_t first, int64_t last, int64_t nodes, int L, const double *const *fields,
                   const double *uniform, double *state, double *norms, double tolerance, int steps,
                   double close, int mode, double *sums, int64_t *counts, double *memory) {
    struct block b;
    double *work = set_up_block(&b, L, uniform, memory);
    for (int64_t n = first; n < last; ++n) {
        const int64_t at = n * LANES;
        load_block(&b, fields, nodes, at);
        cavity_at(&b);
#if HAS_PROXIMAL
        double *d = ATTENTION_RESIDUAL(&b);
        for (int l = 0; l < L; ++l)
            memcpy(d + l * LANES, state + l * nodes + at, LANES * sizeof(double));
        if (mode & MINIMISE) {
            double objective[LANES], norm[LANES];
            local_minimum(&b, d, objective, norm, tolerance, steps, work);
            if (mode & SEARCH)
                global_minimum(&b, d, objective, norm, tolerance, steps, close, &counts[0],
                               &counts[1], work);
            for (int l = 0; l < L; ++l)
                memcpy(state + l * nodes + at, d + l * LANES, LANES * sizeof(double));
            memcpy(norms + at, norm, sizeof norm);
        }
#else
        (void)state; (void)norms; (void)tolerance; (void)steps; (void)close; (void)counts;
        (void)work;
#endif
        if (mode & AVERAGE) {
            readout_at(&b);
            averages_at(&b, sums + (n - first) * AVERAGES);
        }
    }
}
