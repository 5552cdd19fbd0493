/* Functions that generated C calls. Straight-line code, so that a loop over lanes vectorises. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline double rp_bits(int64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline int64_t rp_word(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* exp: argument reduced by multiples of log 2, Taylor series of degree 13, scaled in two steps so
   that subnormal results round correctly. */
static inline double rp_exp(double x) {
    const double shift = 6755399441055744.0; /* 1.5 * 2^52: rounds to an integer */
    double c = x < -746.0 ? -746.0 : x;
    c = c > 710.0 ? 710.0 : c;
    const double t = c * 1.4426950408889634 + shift;
    const double n = t - shift;
    const double r = (c - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    double p = 1.6059043836821613e-10;
    p = p * r + 2.08767569878681e-9;
    p = p * r + 2.505210838544172e-8;
    p = p * r + 2.755731922398589e-7;
    p = p * r + 2.7557319223985893e-6;
    p = p * r + 2.48015873015873e-5;
    p = p * r + 1.984126984126984e-4;
    p = p * r + 1.388888888888889e-3;
    p = p * r + 8.333333333333333e-3;
    p = p * r + 4.1666666666666664e-2;
    p = p * r + 1.6666666666666666e-1;
    p = p * r + 0.5;
    p = (p * r) * r + r;
    const int64_t k = (int64_t)((uint64_t)rp_word(t) - (uint64_t)rp_word(shift));
    const int64_t half = k >> 1;
    const double low = rp_bits((int64_t)((uint64_t)(half + 1023) << 52));
    const double high = rp_bits((int64_t)((uint64_t)(k - half + 1023) << 52));
    return ((1.0 + p) * low) * high;
}

/* 2 atanh(s) for |s| <= 1/3, by its series */
static inline double rp_atanh2(double s) {
    const double q = s * s;
    double p = 1.0 / 35.0;
    p = p * q + 1.0 / 33.0;
    p = p * q + 1.0 / 31.0;
    p = p * q + 1.0 / 29.0;
    p = p * q + 1.0 / 27.0;
    p = p * q + 1.0 / 25.0;
    p = p * q + 1.0 / 23.0;
    p = p * q + 1.0 / 21.0;
    p = p * q + 1.0 / 19.0;
    p = p * q + 1.0 / 17.0;
    p = p * q + 1.0 / 15.0;
    p = p * q + 1.0 / 13.0;
    p = p * q + 1.0 / 11.0;
    p = p * q + 1.0 / 9.0;
    p = p * q + 1.0 / 7.0;
    p = p * q + 1.0 / 5.0;
    p = p * q + 1.0 / 3.0;
    return 2.0 * (s + s * (q * p));
}

/* log(1 + x) for 0 <= x <= 1 */
static inline double rp_log1p_unit(double x) { return rp_atanh2(x / (2.0 + x)); }

/* log of a positive normal number, of infinity or NaN */
static inline double rp_log(double x) {
    const int64_t bits = rp_word(x);
    int64_t k = (bits - 0x3fe6a09e667f3bcdLL) >> 52; /* exponent of x / sqrt(1/2) */
    const double m = rp_bits(bits - (int64_t)((uint64_t)k << 52));
    const double n = (double)k;
    const double value = n * 0.693147180369123816490 +
           (rp_atanh2((m - 1.0) / (m + 1.0)) + n * 1.90821492927058770002e-10);
    return x < HUGE_VAL ? value : x; /* infinity and NaN pass through */
}

static inline double rp_sign(double x) { return (double)((x > 0.0) - (x < 0.0)); }

static inline double rp_maximum0(double x) { return x < 0.0 ? 0.0 : x; }

static inline double rp_sigmoid(double x) {
    const double e = rp_exp(-fabs(x));
    return (x >= 0.0 ? 1.0 : e) / (1.0 + e);
}

static inline double rp_softplus(double x) {
    return rp_maximum0(x) + rp_log1p_unit(rp_exp(-fabs(x)));
}

/* below -37, log(log(1 + e^x)) = x to double precision */
static inline double rp_log_softplus(double x) {
    const double safe = x < -37.0 ? 0.0 : x;
    const double value = rp_log(rp_softplus(safe));
    return x < -37.0 ? x : value;
}

static inline double rp_softplus_score(double x) {
    const double safe = x < -37.0 ? 0.0 : x;
    const double e = rp_exp(-fabs(safe));
    const double value = (safe >= 0.0 ? 1.0 : e) /
                         ((1.0 + e) * (rp_maximum0(safe) + rp_log1p_unit(e)));
    return x < -37.0 ? 1.0 : value;
}
