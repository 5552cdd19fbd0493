/* The CPU as a platform: `real` is a vector of LANES numbers (GCC and Clang vector extensions). */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define SINGLE 0
#define SMALL
#define DEVICE static inline __attribute__((always_inline))
#define ROUTINE static __attribute__((noinline))
#define C(x) x
#define INFINITE __builtin_inf()
#define SLACK 1e-14
#define STRIDE 1

typedef int64_t index_t;
typedef double scalar;
typedef double real __attribute__((vector_size(8 * LANES)));
typedef int64_t word __attribute__((vector_size(8 * LANES)));
typedef word mask; /* all bits set, or none */

DEVICE real rp_splat(scalar x) { return x - (real){0}; }
DEVICE real rp_select(mask m, real a, real b) { return (real)((m & (word)a) | (~m & (word)b)); }
DEVICE mask rp_not(mask m) { return ~m; }
DEVICE mask rp_mask(int on) { return (word){0} - (int64_t)(on != 0); }
DEVICE word rp_word(real x) { return (word)x; }
DEVICE real rp_bits(word w) { return (real)w; }
DEVICE real rp_fabs(real x) { return (real)((word)x & 0x7fffffffffffffffLL); }
DEVICE scalar rp_first(real x) { return x[0]; }

DEVICE int rp_any(mask m) {
    int64_t found = 0;
    for (int i = 0; i < LANES; ++i) found |= m[i];
    return found != 0;
}

DEVICE real rp_sqrt(real x) {
    real y;
    for (int i = 0; i < LANES; ++i) y[i] = __builtin_sqrt(x[i]);
    return y;
}

DEVICE real rp_load(const scalar *p) {
    real x;
    memcpy(&x, p, sizeof x);
    return x;
}

DEVICE void rp_store(scalar *p, real x) { memcpy(p, &x, sizeof x); }

DEVICE scalar rp_total(real x) {
    scalar total = 0.0;
    for (int i = 0; i < LANES; ++i) total += x[i];
    return total;
}

#define LANEWISE(name, function)                                    \
    DEVICE real name(real x) {                                      \
        real y;                                                     \
        for (int i = 0; i < LANES; ++i) y[i] = function(x[i]);      \
        return y;                                                   \
    }
LANEWISE(rp_sin, sin)
LANEWISE(rp_cos, cos)
LANEWISE(rp_acos, acos)
