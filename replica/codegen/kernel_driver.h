/* Minimisation and averages at one node (CUDA: a thread) or one block of nodes (CPU: a vector of
   lanes), the same for every model.

   Generated above this text: struct block, set_up_block, load_block, cavity_at, averages_at,
   observables_at; with HAS_PROXIMAL also proximal_at; with RANK > 0 also curvature_at. Token arrays
   are addressed by AT(l), TOKENS is their length. */

#define MINIMISE 1
#define SEARCH 2
#define SEARCH_ALL 4
#define AVERAGE 8
#define OBSERVE 16

#define SEARCHED_TOKENS 6
#define WAYS 5 /* to move a token in a search */
#define MERGED C(0.02) /* minima closer than this, relatively, count as one */

#define EACH_TOKEN UNROLL for (int l = 0; l < TOKENS; ++l)

DEVICE real *take(real **memory, int arrays, int length) {
    real *start = *memory;
    (void)length;
    *memory += AT(arrays * TOKENS);
    return start;
}

#if RANK > 0

/* The Hessian of the loss at the minimiser, D + sum_r left_r right_r^T over sectors, and what the
   inverse of V^-1 + Hessian needs: K = (1 + D V)^-1 per token, P = K left, and
   C = 1 + right^T V P. Woodbury: O(L RANK^2). */
struct factors {
    real *D[SECTORS][SECTORS], *K[SECTORS][SECTORS], *P[RANK][SECTORS];
    real *left[RANK], *right[RANK][SECTORS];
    real C[RANK][RANK];
    real sign; /* of the determinant of V^-1 + Hessian, relative to V^-1 */
};

DEVICE void set_up_factors(struct factors *f, int length, real **memory) {
    SMALL for (int a = 0; a < SECTORS; ++a)
        SMALL for (int c = 0; c < SECTORS; ++c) {
            f->D[a][c] = take(memory, 1, length);
            f->K[a][c] = take(memory, 1, length);
        }
    SMALL for (int r = 0; r < RANK; ++r) {
        f->left[r] = take(memory, 1, length);
        SMALL for (int a = 0; a < SECTORS; ++a) {
            f->P[r][a] = take(memory, 1, length);
            f->right[r][a] = take(memory, 1, length);
        }
    }
}

/* Solve C X = B in place of B for `columns` right-hand sides, Gauss-Jordan with row exchanges per
   lane; the sign of the determinant goes into f->sign. */
DEVICE void solve(struct factors *f, real *B, int columns) {
    real a[RANK][RANK];
    SMALL for (int r = 0; r < RANK; ++r)
        SMALL for (int s = 0; s < RANK; ++s) a[r][s] = f->C[r][s];
    SMALL for (int c = 0; c < RANK; ++c) {
        SMALL for (int r = c + 1; r < RANK; ++r) {
            const mask larger = rp_fabs(a[r][c]) > rp_fabs(a[c][c]);
            SMALL for (int s = c; s < RANK; ++s) {
                const real x = a[r][s];
                a[r][s] = rp_select(larger, a[c][s], x);
                a[c][s] = rp_select(larger, x, a[c][s]);
            }
            SMALL for (int s = 0; s < columns; ++s) {
                const real y = B[r * columns + s];
                B[r * columns + s] = rp_select(larger, B[c * columns + s], y);
                B[c * columns + s] = rp_select(larger, y, B[c * columns + s]);
            }
            f->sign = rp_select(larger, -f->sign, f->sign);
        }
        f->sign = rp_select(a[c][c] < C(0.0), -f->sign, f->sign);
        const real scale = C(1.0) / a[c][c];
        SMALL for (int s = c + 1; s < RANK; ++s) a[c][s] = a[c][s] * scale;
        SMALL for (int s = 0; s < columns; ++s) B[c * columns + s] = B[c * columns + s] * scale;
        SMALL for (int r = 0; r < RANK; ++r) {
            if (r == c) continue;
            const real x = a[r][c];
            SMALL for (int s = c + 1; s < RANK; ++s) a[r][s] = a[r][s] - x * a[c][s];
            SMALL for (int s = 0; s < columns; ++s)
                B[r * columns + s] = B[r * columns + s] - x * B[c * columns + s];
        }
    }
}

DEVICE void factorise(const struct block *b, const real *d, struct factors *f) {
    const int length = b->length;
    const scalar V[SECTORS] = RESPONSES(b);
    const int sector[RANK] = LEFT_SECTORS;
    (void)length;
    curvature_at(b, d, f);
    real C_matrix[RANK][RANK];
    SMALL for (int r = 0; r < RANK; ++r)
        SMALL for (int s = 0; s < RANK; ++s) C_matrix[r][s] = rp_splat(r == s ? C(1.0) : C(0.0));
    f->sign = rp_splat(C(1.0));
    EACH_TOKEN {
#if SECTORS == 1
        const real det = C(1.0) + V[0] * f->D[0][0][AT(l)];
        f->K[0][0][AT(l)] = C(1.0) / det;
#else
        const real m00 = C(1.0) + V[0] * f->D[0][0][AT(l)], m01 = V[1] * f->D[0][1][AT(l)];
        const real m10 = V[0] * f->D[1][0][AT(l)], m11 = C(1.0) + V[1] * f->D[1][1][AT(l)];
        const real det = m00 * m11 - m01 * m10, inverse = C(1.0) / det;
        f->K[0][0][AT(l)] = m11 * inverse;
        f->K[0][1][AT(l)] = -m01 * inverse;
        f->K[1][0][AT(l)] = -m10 * inverse;
        f->K[1][1][AT(l)] = m00 * inverse;
#endif
        f->sign = rp_select(det < C(0.0), -f->sign, f->sign);
        SMALL for (int s = 0; s < RANK; ++s)
            SMALL for (int a = 0; a < SECTORS; ++a)
                f->P[s][a][AT(l)] = f->K[a][sector[s]][AT(l)] * f->left[s][AT(l)];
        SMALL for (int r = 0; r < RANK; ++r)
            SMALL for (int a = 0; a < SECTORS; ++a) {
                const real w = V[a] * f->right[r][a][AT(l)];
                SMALL for (int s = 0; s < RANK; ++s)
                    C_matrix[r][s] = C_matrix[r][s] + w * f->P[s][a][AT(l)];
            }
    }
    SMALL for (int r = 0; r < RANK; ++r)
        SMALL for (int s = 0; s < RANK; ++s) f->C[r][s] = C_matrix[r][s];
}

/* Per pair of sectors: sum over tokens of the squared derivative of the displacements by the
   cavity fields, T = E + P C^-1 Q^T with E = K D and Q = K right. */
DEVICE void squared_response(const struct block *b, const real *d, struct factors *f,
                             real out[SECTORS][SECTORS]) {
    const int length = b->length;
    (void)length;
    factorise(b, d, f);
    real inverse[RANK][RANK];
    SMALL for (int r = 0; r < RANK; ++r)
        SMALL for (int s = 0; s < RANK; ++s) inverse[r][s] = rp_splat(r == s ? C(1.0) : C(0.0));
    solve(f, &inverse[0][0], RANK);
    real PP[SECTORS][RANK][RANK], QQ[SECTORS][RANK][RANK];
    SMALL for (int a = 0; a < SECTORS; ++a)
        SMALL for (int r = 0; r < RANK; ++r)
            SMALL for (int s = 0; s < RANK; ++s) PP[a][r][s] = QQ[a][r][s] = rp_splat(C(0.0));
    SMALL for (int a = 0; a < SECTORS; ++a)
        SMALL for (int c = 0; c < SECTORS; ++c) out[a][c] = rp_splat(C(0.0));
    EACH_TOKEN {
        real P[RANK][SECTORS], Q[RANK][SECTORS], E[SECTORS][SECTORS];
        SMALL for (int r = 0; r < RANK; ++r)
            SMALL for (int a = 0; a < SECTORS; ++a) {
                P[r][a] = f->P[r][a][AT(l)];
                Q[r][a] = rp_splat(C(0.0));
                SMALL for (int e = 0; e < SECTORS; ++e)
                    Q[r][a] = Q[r][a] + f->K[a][e][AT(l)] * f->right[r][e][AT(l)];
            }
        SMALL for (int a = 0; a < SECTORS; ++a)
            SMALL for (int c = 0; c < SECTORS; ++c) {
                E[a][c] = rp_splat(C(0.0));
                SMALL for (int e = 0; e < SECTORS; ++e)
                    E[a][c] = E[a][c] + f->K[a][e][AT(l)] * f->D[e][c][AT(l)];
                real cross = rp_splat(C(0.0));
                SMALL for (int r = 0; r < RANK; ++r)
                    SMALL for (int s = 0; s < RANK; ++s)
                        cross = cross + P[r][a] * inverse[r][s] * Q[s][c];
                out[a][c] = out[a][c] + E[a][c] * (E[a][c] + C(2.0) * cross);
            }
        SMALL for (int a = 0; a < SECTORS; ++a)
            SMALL for (int r = 0; r < RANK; ++r)
                SMALL for (int s = 0; s < RANK; ++s) {
                    PP[a][r][s] = PP[a][r][s] + P[r][a] * P[s][a];
                    QQ[a][r][s] = QQ[a][r][s] + Q[r][a] * Q[s][a];
                }
    }
    SMALL for (int a = 0; a < SECTORS; ++a)
        SMALL for (int c = 0; c < SECTORS; ++c)
            SMALL for (int r = 0; r < RANK; ++r)
                SMALL for (int s = 0; s < RANK; ++s) {
                    real inner = rp_splat(C(0.0));
                    SMALL for (int t = 0; t < RANK; ++t)
                        SMALL for (int u = 0; u < RANK; ++u)
                            inner = inner + inverse[r][t] * QQ[c][t][u] * inverse[s][u];
                    out[a][c] = out[a][c] + PP[a][r][s] * inner;
                }
}

#endif

#if HAS_PROXIMAL

/* Largest gradient entry, relative to the size of the displacement. */
DEVICE real gradient_size(const real *g, const real *d, int length) {
    real worst = rp_splat(C(0.0)), extent = rp_splat(C(0.0));
    (void)length;
    EACH_TOKEN {
        worst = rp_max(worst, rp_fabs(g[AT(l)]));
        extent = rp_max(extent, rp_fabs(d[AT(l)]));
    }
    return worst / (C(1.0) + extent);
}

struct workspace {
    real *g, *u, *trial, *g2, *u2, *before, *other;
    real steps, executed;
#if RANK > 0
    struct factors factors;
#endif
};

DEVICE void set_up_workspace(struct workspace *w, int length, real **memory) {
    w->steps = w->executed = rp_splat(C(0.0));
    w->g = take(memory, 1, length);
    w->u = take(memory, 1, length);
    w->trial = take(memory, 1, length);
    w->g2 = take(memory, 1, length);
    w->u2 = take(memory, 1, length);
    w->before = take(memory, 1, length);
    w->other = take(memory, 1, length);
#if RANK > 0
    set_up_factors(&w->factors, length, memory);
#endif
}

#if RANK > 0

/* Newton's step d - (V^-1 + Hessian)^-1 g / V, the readout eliminated by the same solve. Returns
   where it is a descent direction of a positive definite form; elsewhere trial means nothing. */
DEVICE mask newton_trial(const struct block *b, const real *d, struct workspace *w, mask wanted) {
    const int length = b->length;
    struct factors *f = &w->factors;
    const scalar V[SECTORS] = RESPONSES(b);
    real t[RANK], slope = rp_splat(C(0.0));
    (void)length;
    factorise(b, d, f);
    SMALL for (int r = 0; r < RANK; ++r) t[r] = rp_splat(C(0.0));
    EACH_TOKEN {
        const real g = w->g[AT(l)];
        SMALL for (int r = 0; r < RANK; ++r)
            SMALL for (int a = 0; a < SECTORS; ++a)
                t[r] = t[r] + V[a] * f->right[r][a][AT(l)] * (f->K[a][0][AT(l)] * g);
    }
    solve(f, t, 1);
    EACH_TOKEN {
        real move = f->K[0][0][AT(l)] * w->g[AT(l)];
        SMALL for (int r = 0; r < RANK; ++r) move = move - f->P[r][0][AT(l)] * t[r];
        slope = slope + move * w->g[AT(l)];
        w->u2[AT(l)] = move; /* free until the next evaluation */
    }
    const mask good = wanted & (f->sign > C(0.0)) & (slope > C(0.0));
    EACH_TOKEN {
        w->trial[AT(l)] = d[AT(l)] - w->u2[AT(l)];
    }
    return good;
}

#endif

/* Levenberg-damped step with the rank-one curvature u u^T, except where `took` says that a trial
   is there already. */
DEVICE void gauss_newton_trial(const real *d, scalar V, real damping, struct workspace *w,
                               mask took, int length) {
    real slope = rp_splat(C(0.0)), square = rp_splat(C(0.0));
    (void)length;
    EACH_TOKEN {
        slope = slope + w->u[AT(l)] * w->g[AT(l)];
        square = square + w->u[AT(l)] * w->u[AT(l)];
    }
    const real scale = C(1.0) / (C(1.0) + damping * V);
    const real inner = scale * V * slope / (C(1.0) + scale * V * square);
    EACH_TOKEN {
        const real trial = d[AT(l)] - scale * (w->g[AT(l)] - w->u[AT(l)] * inner);
        w->trial[AT(l)] = rp_select(took, w->trial[AT(l)], trial);
    }
}

/* Largest difference of two displacements, relative to the size of the first. */
DEVICE real distance(const real *a, const real *b, int length) {
    real gap = rp_splat(C(0.0)), extent = rp_splat(C(0.0));
    (void)length;
    EACH_TOKEN {
        gap = rp_max(gap, rp_fabs(a[AT(l)] - b[AT(l)]));
        extent = rp_max(extent, rp_fabs(a[AT(l)]));
    }
    return gap / (C(1.0) + extent);
}

/* Local minimum from d: Newton's method where it descends, Levenberg-damped Gauss-Newton steps with
   their rank-one curvature elsewhere. Given a known minimum, lanes that come near it stop. */
ROUTINE void local_minimum(const struct block *b, real *d, real *objective, real *norm,
                           scalar tolerance, int steps, struct workspace *w, const real *known) {
    const real one = rp_splat(C(1.0));
    const int length = b->length;
    const scalar V = V_ATTENTION(b);
    real damping = rp_splat(C(0.0));
    mask newton = rp_mask(1);
    (void)length;
    *objective = proximal_at(b, d, w->g, w->u);
    *norm = gradient_size(w->g, d, length);
    for (int step = 0; step < steps; ++step) {
        mask moving = *norm > tolerance;
        if (known) moving = moving & (distance(known, d, length) > MERGED);
        if (!rp_any(moving)) return;
        w->steps = w->steps + rp_select(moving, one, rp_splat(C(0.0)));
        w->executed = w->executed + one;
        mask took = rp_mask(0);
#if RANK > 0
        took = moving & newton;
        if (rp_any(took)) took = newton_trial(b, d, w, took);
#endif
        if (rp_any(moving & rp_not(took))) gauss_newton_trial(d, V, damping, w, took, length);
        const real objective2 = proximal_at(b, w->trial, w->g2, w->u2);
        const real norm2 = gradient_size(w->g2, w->trial, length);
        const real slack = SLACK * (C(1.0) + rp_fabs(*objective));
        const mask better = moving & ((objective2 < *objective - slack) |
                                      ((objective2 <= *objective + slack) & (norm2 <= *norm)));
        const real relaxed = rp_select(damping < C(1e-3) / V, rp_splat(C(0.0)), C(0.2) * damping);
        const real firmer = rp_max(C(5.0) * damping, rp_splat(C(1.0) / V));
        damping = rp_select(better, relaxed, rp_select(took, damping, firmer));
        newton = better | rp_not(took); /* a refused Newton step is followed by Gauss-Newton */
        *objective = rp_select(better, objective2, *objective);
        *norm = rp_select(better, norm2, *norm);
        EACH_TOKEN {
            d[AT(l)] = rp_select(better, w->trial[AT(l)], d[AT(l)]);
            w->g[AT(l)] = rp_select(better, w->g2[AT(l)], w->g[AT(l)]);
            w->u[AT(l)] = rp_select(better, w->u2[AT(l)], w->u[AT(l)]);
        }
    }
}

/* The token after (size, number) in the order of decreasing readout cavity field. */
DEVICE void next_token(const real *readout, int length, real *size, real *number) {
    real best = rp_splat(C(-1.0)), found = rp_splat(C(-1.0));
    (void)length;
    EACH_TOKEN {
        const real here = rp_fabs(readout[AT(l)]);
        const real place = rp_splat((scalar)l);
        const mask later = (here < *size) | ((here == *size) & (place > *number));
        const mask better = later & (here > best);
        best = rp_select(better, here, best);
        found = rp_select(better, place, found);
    }
    *size = best;
    *number = found;
}

/* A start for the search, into w->other: `token` of the base point (no displacement, or d itself)
   raised or lowered by 2 or 3, or switched over where that is too short: a normalised activation
   hands the attention from its first token to this one, by half of their gap each; any other token
   far from zero is brought to zero. Never out of the ball V|d|^2/2 <= objective + close beyond
   which no minimum can lie that matters. Returns where the start is worth a try. */
DEVICE mask move_token(const struct block *b, const real *d, int from_best, int way, real token,
                       real radius, struct workspace *w) {
    const int length = b->length;
    const scalar V = V_ATTENTION(b);
    const real *cavity = ATTENTION_CAVITY(b), zero = rp_splat(C(0.0));
    real own_move = zero, first = rp_splat(C(-1.0)), first_move = zero;
    mask tried = rp_mask(1);
    (void)length;
    if (way < WAYS - 1) {
        const scalar far = way < 2 ? C(2.0) : C(3.0), sign = way % 2 == 0 ? C(1.0) : C(-1.0);
        own_move = sign * rp_min(rp_splat(far), radius);
        if (way >= 2) tried = radius > C(2.0);
    } else {
        real own = zero, highest = rp_splat(-INFINITE);
        EACH_TOKEN {
            const real field = cavity[AT(l)] + (from_best ? V * d[AT(l)] : zero);
            const real place = rp_splat((scalar)l);
            const mask higher = field > highest;
            own = rp_select(token == place, field, own);
            first = rp_select(higher, place, first);
            highest = rp_select(higher, field, highest);
        }
#if NORMALISED
        const real half = C(0.5) * (highest - own), farthest = C(0.70710678118654752) * radius;
        own_move = rp_min(half + C(1.0), farthest);
        first_move = -own_move;
        tried = (half > C(1.0)) & (half < farthest);
#else
        own_move = -own;
        tried = (rp_fabs(own) > C(3.0)) & (rp_fabs(own) < radius);
#endif
    }
    EACH_TOKEN {
        const real place = rp_splat((scalar)l);
        real move = rp_select(token == place, own_move, zero);
        move = move + rp_select(first == place, first_move, zero);
        w->other[AT(l)] = (from_best ? d[AT(l)] : zero) + move / V;
    }
    return tried;
}

/* Global minimum over several starts, in the lanes wanted: no displacement, and each searched token
   moved in several ways; where the best point has a token switched over, the tokens are moved once
   more from there. moved: where a lower minimum was found; margin: how far the nearest rival lies
   above it. The NumPy engine takes the same starts. */
ROUTINE void global_minimum(const struct block *b, real *d, real *objective, real *norm,
                            scalar tolerance, int steps, scalar close, mask wanted,
                            struct workspace *w, real *moved, real *margin) {
    const int length = b->length;
    const scalar V = V_ATTENTION(b), coarse = tolerance > C(1e-5) ? tolerance : C(1e-5);
    real rival = rp_splat(INFINITE);
    EACH_TOKEN { w->before[AT(l)] = d[AT(l)]; }
    const int tokens = TOKENS < SEARCHED_TOKENS ? TOKENS : SEARCHED_TOKENS;
    mask here = wanted;
    for (int again = 0; again < 2; ++again) {
        real size = rp_splat(INFINITE), token = rp_splat(C(-1.0));
        for (int start = again; start < 1 + WAYS * tokens; ++start) {
            const int way = (start + WAYS - 1) % WAYS;
            const real energy = rp_max(*objective + close, rp_splat(C(0.0)));
            mask tried = here;
            if (start == 0) {
                EACH_TOKEN { w->other[AT(l)] = rp_splat(C(0.0)); }
            } else {
                if (way == 0) next_token(READOUT_CAVITY(b), length, &size, &token);
                tried = tried & move_token(b, d, again, way, token, rp_sqrt(C(2.0) * V * energy), w);
            }
            if (!rp_any(tried)) continue;
            EACH_TOKEN { w->other[AT(l)] = rp_select(tried, w->other[AT(l)], d[AT(l)]); }
            real objective2, norm2;
            local_minimum(b, w->other, &objective2, &norm2, coarse, 2 * steps, w, d);
            const mask differs = distance(d, w->other, length) > MERGED;
            const mask lower = differs &
                               (objective2 < *objective - C(1e-9) * (C(1.0) + rp_fabs(*objective)));
            const mask near = differs & rp_not(lower) & (norm2 < C(1e-4)) & (objective2 < rival);
            rival = rp_select(lower, *objective, rp_select(near, objective2, rival));
            *objective = rp_select(lower, objective2, *objective);
            *norm = rp_select(lower, norm2, *norm);
            EACH_TOKEN { d[AT(l)] = rp_select(lower, w->other[AT(l)], d[AT(l)]); }
        }
        real extent = rp_splat(C(0.0));
        EACH_TOKEN { extent = rp_max(extent, rp_fabs(d[AT(l)])); }
        here = wanted & (V * extent > C(1.0));
    }
    const mask changed = distance(w->before, d, length) > MERGED;
    if (rp_any(changed)) local_minimum(b, d, objective, norm, tolerance, steps, w, 0);
    *moved = rp_select(changed, rp_splat(C(1.0)), rp_splat(C(0.0)));
    *margin = rp_select(wanted, rival - *objective, *margin);
}

#endif

/* One node or block: arrays are [token][node] with `nodes` columns, `at` is the first column.
   margins holds how far the nearest rival minimum lay at the last search; SEARCH repeats the search
   where one was within `close`, SEARCH_ALL everywhere. sums: AVERAGES numbers, then moved,
   competing, steps and executed, `pitch` apart. */
DEVICE void process(index_t at, index_t nodes, int length, const scalar *const *fields,
                    const scalar *uniform, scalar *state, scalar *norms, scalar *margins,
                    scalar tolerance, int steps, scalar close, int mode, scalar *sums,
                    index_t pitch, real *memory) {
    struct block b;
    set_up_block(&b, length, uniform, &memory);
    load_block(&b, fields, nodes, at);
    cavity_at(&b);
    real moved = rp_splat(C(0.0)), margin = rp_splat(INFINITE);
    (void)moved;
#if HAS_PROXIMAL
    struct workspace w;
    set_up_workspace(&w, length, &memory);
    real *d = ATTENTION_RESIDUAL(&b);
    EACH_TOKEN { d[AT(l)] = rp_load(state + l * nodes + at); }
    if (mode & MINIMISE) {
        real objective, norm;
        local_minimum(&b, d, &objective, &norm, tolerance, steps, &w, 0);
        margin = rp_load(margins + at);
        const mask wanted = mode & SEARCH_ALL ? rp_mask(1) : margin < close;
        if ((mode & (SEARCH | SEARCH_ALL)) && rp_any(wanted))
            global_minimum(&b, d, &objective, &norm, tolerance, steps, close, wanted, &w, &moved,
                           &margin);
        EACH_TOKEN { rp_store(state + l * nodes + at, d[AT(l)]); }
        rp_store(norms + at, norm);
        rp_store(margins + at, margin);
    }
#else
    (void)state; (void)norms; (void)margins; (void)tolerance; (void)steps; (void)close;
#endif
    if (mode & AVERAGE) averages_at(&b, sums, pitch);
    if (mode & OBSERVE) observables_at(&b, sums, pitch);
    if (mode & MINIMISE) {
        const real competing = rp_select(margin < close, rp_splat(C(1.0)), rp_splat(C(0.0)));
        sums[AVERAGES * pitch] = rp_total(moved);
        sums[(AVERAGES + 1) * pitch] = rp_total(competing);
#if HAS_PROXIMAL
        sums[(AVERAGES + 2) * pitch] = rp_total(w.steps);
        sums[(AVERAGES + 3) * pitch] = rp_total(w.executed);
#endif
    }
}

/* Squared responses of one node or block at the stored minimiser, SECTORS x SECTORS numbers. */
DEVICE void respond(index_t at, index_t nodes, int length, const scalar *const *fields,
                    const scalar *uniform, const scalar *state, scalar *sums, index_t pitch,
                    real *memory) {
#if RANK > 0
    struct block b;
    set_up_block(&b, length, uniform, &memory);
    load_block(&b, fields, nodes, at);
    cavity_at(&b);
    struct factors f;
    set_up_factors(&f, length, &memory);
    real *d = ATTENTION_RESIDUAL(&b), out[SECTORS][SECTORS];
#if HAS_PROXIMAL
    EACH_TOKEN { d[AT(l)] = rp_load(state + l * nodes + at); }
#else
    (void)state;
#endif
    squared_response(&b, d, &f, out);
    SMALL for (int a = 0; a < SECTORS; ++a)
        SMALL for (int c = 0; c < SECTORS; ++c) sums[(a * SECTORS + c) * pitch] = rp_total(out[a][c]);
#else
    (void)at; (void)nodes; (void)length; (void)fields; (void)uniform; (void)state; (void)sums;
    (void)pitch; (void)memory;
#endif
}
