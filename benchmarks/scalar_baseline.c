/* Baseline: the saddle-point sweep for softmax attention on spiked data, one node at a time.

   The algorithm a careful person would write by hand: Gauss-Newton with its rank-one curvature
   from the previous sweep's minimiser, libm's exp, no blocks and no vector code. Frozen: it is
   what the engine is compared with. */

#include <math.h>
#include <stdint.h>

#define MAX_LENGTH 64

/* Reduced objective at displacement d; gradient g and Gauss-Newton direction u. */
static double reduced(int L, const double *wk, const double *wv, double y, double Vk, double Vv,
                      const double *d, double *g, double *u, double *s) {
    double top = -INFINITY, norm = 0.0, a = 0.0, b = 0.0, penalty = 0.0;
    for (int l = 0; l < L; ++l) {
        const double chi = wk[l] + Vk * d[l];
        s[l] = chi;
        if (chi > top) top = chi;
        penalty += d[l] * d[l];
    }
    for (int l = 0; l < L; ++l) { s[l] = exp(s[l] - top); norm += s[l]; }
    for (int l = 0; l < L; ++l) { s[l] /= norm; a += s[l] * wv[l]; b += s[l] * s[l]; }
    const double rho = y - a, D = 1.0 + Vv * b, root = sqrt(D);
    for (int l = 0; l < L; ++l) {
        const double slope = s[l] * ((wv[l] - a) + Vv * rho * (s[l] - b) / D);
        g[l] = d[l] - rho * slope / D;
        u[l] = -slope / root;
    }
    return rho * rho / (2.0 * D) + 0.5 * Vk * penalty;
}

/* One sweep over nodes first..last-1; arrays are [node][token]. Adds to sums:
   f_k[0], f_k.omega_k, |f_k|^2, f_v[0](q_v y - m_v omega_v[0]), f_v.omega_v, |f_v|^2. */
void baseline_sweep(int64_t first, int64_t last, int L, const double *zk, const double *zv,
                    const double *xi, double m_k, double q_k, double V_k, double m_v, double q_v,
                    double V_v, double root_nu, double noise, double tolerance, double *state,
                    double *sums) {
    double wk[MAX_LENGTH], wv[MAX_LENGTH], g[MAX_LENGTH], u[MAX_LENGTH], s[MAX_LENGTH];
    double trial[MAX_LENGTH], g2[MAX_LENGTH], u2[MAX_LENGTH], s2[MAX_LENGTH];
    for (int64_t n = first; n < last; ++n) {
        double *d = state + n * L;
        for (int l = 0; l < L; ++l) {
            wk[l] = sqrt(q_k) * zk[n * L + l] + (l == 0 ? m_k * root_nu : 0.0);
            wv[l] = sqrt(q_v) * zv[n * L + l];
        }
        const double y = m_v / q_v * wv[0] + sqrt(1.0 - m_v * m_v / q_v + noise * noise) * xi[n];
        double objective = reduced(L, wk, wv, y, V_k, V_v, d, g, u, s), damping = 0.0;
        for (int step = 0; step < 200; ++step) {
            double worst = 0.0, extent = 0.0, slope = 0.0, square = 0.0;
            for (int l = 0; l < L; ++l) {
                worst = fmax(worst, fabs(g[l]));
                extent = fmax(extent, fabs(d[l]));
                slope += u[l] * g[l];
                square += u[l] * u[l];
            }
            if (worst <= tolerance * (1.0 + extent)) break;
            const double scale = 1.0 / (1.0 + damping * V_k);
            const double inner = scale * V_k * slope / (1.0 + scale * V_k * square);
            for (int l = 0; l < L; ++l) trial[l] = d[l] - scale * (g[l] - u[l] * inner);
            const double value = reduced(L, wk, wv, y, V_k, V_v, trial, g2, u2, s2);
            if (value <= objective + 1e-14 * (1.0 + fabs(objective))) {
                for (int l = 0; l < L; ++l) {
                    d[l] = trial[l]; g[l] = g2[l]; u[l] = u2[l]; s[l] = s2[l];
                }
                objective = value;
                damping = damping < 1e-3 / V_k ? 0.0 : 0.2 * damping;
            } else {
                damping = fmax(5.0 * damping, 1.0 / V_k);
            }
        }
        double a = 0.0, b = 0.0;
        for (int l = 0; l < L; ++l) { a += s[l] * wv[l]; b += s[l] * s[l]; }
        const double factor = (y - a) / (1.0 + V_v * b);
        sums[0] += d[0];
        sums[3] += factor * s[0] * (q_v * y - m_v * wv[0]);
        for (int l = 0; l < L; ++l) {
            const double f = factor * s[l];
            sums[1] += d[l] * wk[l];
            sums[2] += d[l] * d[l];
            sums[4] += f * wv[l];
            sums[5] += f * f;
        }
    }
}
