/* Functions that generated kernels call: straight-line code on `real`, which is a vector of lanes on
   the CPU and a number on the GPU. What a platform provides (real, scalar, mask, word, rp_select,
   rp_word, rp_bits, rp_sqrt, rp_fabs, ...) is in kernel_cpu.h and kernel_cuda.h.

   C(x) types a literal like the kernel. */

DEVICE real rp_max(real a, real b) { return rp_select(b > a, b, a); }

DEVICE real rp_min(real a, real b) { return rp_select(b < a, b, a); }

DEVICE real rp_maximum0(real x) { return rp_select(x < C(0.0), rp_splat(C(0.0)), x); }

DEVICE real rp_abs(real x) { return rp_fabs(x); }

/* 1 above zero, 0 below, 1/2 at the kink */
DEVICE real rp_step(real x) {
    const real above = rp_select(x > C(0.0), rp_splat(C(1.0)), rp_splat(C(0.5)));
    return rp_select(x < C(0.0), rp_splat(C(0.0)), above);
}

DEVICE real rp_sign(real x) {
    const real above = rp_select(x > C(0.0), rp_splat(C(1.0)), C(0.0) * x);
    return rp_select(x < C(0.0), rp_splat(C(-1.0)), above);
}

#if !SINGLE

#define SHIFT C(6755399441055744.0) /* 1.5 * 2^52: adding it rounds to an integer */

/* 2^k in two factors, so that subnormal results round correctly */
DEVICE real rp_scale(real x, word k) {
    const word half = k >> 1;
    return (x * rp_bits((half + 1023) << 52)) * rp_bits((k - half + 1023) << 52);
}

/* e^r - 1 for |r| <= log(2)/2: Taylor series of degree 13 */
DEVICE real rp_expm1_reduced(real r) {
    real p = rp_splat(C(1.6059043836821613e-10));
    p = p * r + C(2.08767569878681e-09);
    p = p * r + C(2.505210838544172e-08);
    p = p * r + C(2.7557319223985888e-07);
    p = p * r + C(2.7557319223985893e-06);
    p = p * r + C(2.4801587301587302e-05);
    p = p * r + C(0.00019841269841269841);
    p = p * r + C(0.0013888888888888889);
    p = p * r + C(0.0083333333333333332);
    p = p * r + C(0.041666666666666664);
    p = p * r + C(0.16666666666666666);
    p = p * r + C(0.5);
    return (p * r) * r + r;
}

/* x - n log 2 with n log 2 in two parts */
DEVICE real rp_reduce(real x, real n) {
    return (x - n * C(0.693147180369123816490)) - n * C(1.90821492927058770002e-10);
}

DEVICE real rp_exp(real x) {
    real c = rp_select(x < C(-746.0), rp_splat(C(-746.0)), x);
    c = rp_select(c > C(710.0), rp_splat(C(710.0)), c);
    const real t = c * C(1.4426950408889634) + SHIFT, n = t - SHIFT;
    return rp_scale(C(1.0) + rp_expm1_reduced(rp_reduce(c, n)),
                    rp_word(t) - rp_word(rp_splat(SHIFT)));
}

DEVICE real rp_expm1(real x) {
    real c = rp_select(x < C(-60.0), rp_splat(C(-60.0)), x);
    c = rp_select(c > C(710.0), rp_splat(C(710.0)), c);
    const real t = c * C(1.4426950408889634) + SHIFT, n = t - SHIFT;
    const word k = rp_word(t) - rp_word(rp_splat(SHIFT)), half = k >> 1;
    const real p = rp_expm1_reduced(rp_reduce(c, n));
    const real low = rp_bits((half + 1023) << 52), high = rp_bits((k - half + 1023) << 52);
    return (p * low) * high + (low * high - C(1.0));
}

/* 2 atanh(s) for |s| <= 1/3, by its series */
DEVICE real rp_atanh2(real s) {
    const real q = s * s;
    real p = rp_splat(C(0.028571428571428571));
    p = p * q + C(0.030303030303030304);
    p = p * q + C(0.032258064516129031);
    p = p * q + C(0.034482758620689655);
    p = p * q + C(0.037037037037037035);
    p = p * q + C(0.040000000000000001);
    p = p * q + C(0.043478260869565216);
    p = p * q + C(0.047619047619047616);
    p = p * q + C(0.052631578947368418);
    p = p * q + C(0.058823529411764705);
    p = p * q + C(0.066666666666666666);
    p = p * q + C(0.076923076923076927);
    p = p * q + C(0.090909090909090912);
    p = p * q + C(0.1111111111111111);
    p = p * q + C(0.14285714285714285);
    p = p * q + C(0.20000000000000001);
    p = p * q + C(0.33333333333333331);
    return C(2.0) * (s + s * (q * p));
}

/* log(1 + x) for 0 <= x <= 1 */
DEVICE real rp_log1p_unit(real x) { return rp_atanh2(x / (C(2.0) + x)); }

/* log of a positive normal number, of infinity or NaN; -infinity at zero, NaN below */
DEVICE real rp_log(real x) {
    const word bits = rp_word(x), offset = bits - 0x3fe6a09e667f3bcdLL; /* sqrt(1/2) */
    const word k = offset >> 52;
    const real m = rp_bits(bits - (k << 52));
    const real n = rp_bits(rp_word(rp_splat(SHIFT)) + k) - SHIFT;
    const real value = n * C(0.693147180369123816490) +
           (rp_atanh2((m - C(1.0)) / (m + C(1.0))) + n * C(1.90821492927058770002e-10));
    const real low = rp_select(x < C(0.0), C(0.0) * (x / x) / C(0.0), rp_splat(-INFINITE));
    return rp_select(x < INFINITE, rp_select(x > C(0.0), value, low), x);
}

DEVICE real rp_log1p(real x) {
    const real u = C(1.0) + x, lost = x - (u - C(1.0));
    const real value = rp_log(u) + lost / u;
    return rp_select(u > C(0.0), rp_select(u < INFINITE, value, u), rp_log(u));
}

/* (1 + 2x) erfcx(x) for x >= 0: Chebyshev interpolation of degree 24 in (x - 3.75)/(x + 3.75),
   computed with 60 digits from its definition */
DEVICE real rp_erfcx_positive(real x) {
    const real far = rp_select(x > C(1e300), rp_splat(C(1e300)), x);
    const real t = (far - C(3.75)) / (far + C(3.75));
    real p = rp_splat(C(4.2514714447963895e-10));
    p = p * t + C(3.1114333809799254e-10);
    p = p * t + C(-5.1739902140113095e-09);
    p = p * t + C(-3.7442100809620183e-09);
    p = p * t + C(3.8675334242222354e-08);
    p = p * t + C(2.3263508708859124e-08);
    p = p * t + C(-2.5866850716155884e-07);
    p = p * t + C(-5.7218230603224086e-08);
    p = p * t + C(1.7516376488490621e-06);
    p = p * t + C(-9.7355989673677497e-07);
    p = p * t + C(-1.1444146237700524e-05);
    p = p * t + C(2.2384239155082231e-05);
    p = p * t + C(5.1649098892682407e-05);
    p = p * t + C(-0.00029015408054084172);
    p = p * t + C(0.00029371366559134481);
    p = p * t + C(0.0017556258528952954);
    p = p * t + C(-0.0097465795580292756);
    p = p * t + C(0.028362277418956406);
    p = p * t + C(-0.058693398589636771);
    p = p * t + C(0.092304321160377484);
    p = p * t + C(-0.10880393014174886);
    p = p * t + C(0.082276738490145204);
    p = p * t + C(0.0035854154854644293);
    p = p * t + C(-0.14024059858554697);
    p = p * t + C(1.2375126308378275);
    return p / (C(1.0) + C(2.0) * far);
}

/* e^(-x^2): the square in two parts, its rounding error would be multiplied by x^2 */
DEVICE real rp_gauss(real x) {
    const real high = rp_bits(rp_word(x) & ~0x7ffffffLL);
    return rp_exp(-(high * high)) * rp_exp(-((x - high) * (x + high)));
}

/* erf(x) for |x| <= 1: x times a polynomial in x^2, interpolated as above */
DEVICE real rp_erf_unit(real x) {
    const real q = x * x;
    real p = rp_splat(C(2.8073526176477029e-13));
    p = p * q + C(-6.1971845088408517e-12);
    p = p * q + C(9.3238636179622251e-11);
    p = p * q + C(-1.2277760280084826e-09);
    p = p * q + C(1.4806030251337853e-08);
    p = p * q + C(-1.636576890552566e-07);
    p = p * q + C(1.6462110796906402e-06);
    p = p * q + C(-1.4925650237575669e-05);
    p = p * q + C(0.00012055332978896794);
    p = p * q + C(-0.00085483270234033349);
    p = p * q + C(0.0052239776254416779);
    p = p * q + C(-0.026866170645131218);
    p = p * q + C(0.11283791670955126);
    p = p * q + C(-0.37612638903183754);
    p = p * q + C(1.1283791670955126);
    return x * p;
}

DEVICE real rp_erfc(real x) {
    const real a = rp_fabs(x), c = rp_select(a > C(30.0), rp_splat(C(30.0)), a);
    const real tail = rp_gauss(c) * rp_erfcx_positive(c);
    const real value = rp_select(x < C(0.0), C(2.0) - tail, tail);
    const real inner = C(1.0) - rp_erf_unit(c * rp_sign(x));
    return rp_select(x == x, rp_select(a < C(0.5), inner, value), x);
}

DEVICE real rp_erf(real x) {
    const real a = rp_fabs(x), c = rp_select(a > C(6.0), rp_splat(C(6.0)), a);
    const real tail = C(1.0) - rp_gauss(c) * rp_erfcx_positive(c);
    const real value = rp_select(a < C(1.0), rp_erf_unit(a), tail);
    return rp_select(x == x, rp_select(x < C(0.0), -value, value), x);
}

DEVICE real rp_erfcx(real x) {
    const real a = rp_fabs(x), c = rp_select(a > C(27.0), rp_splat(C(27.0)), a);
    const real right = rp_erfcx_positive(a);
    const real left = C(2.0) / rp_gauss(c) - right;
    const real value = rp_select(x < C(0.0), left, right);
    return rp_select(x < C(-26.7), rp_splat(INFINITE), rp_select(x == x, value, x));
}

#endif

/* log of the normal distribution function */
DEVICE real rp_log_ndtr(real x) {
    const real u = x * C(-0.70710678118654752), low = rp_select(x < C(-1.0), u, rp_splat(C(1.0)));
    const real high = rp_select(x < C(-1.0), rp_splat(C(0.0)), u);
    const real left = rp_log(C(0.5) * rp_erfcx(low)) - C(0.5) * (x * x);
    return rp_select(x < C(-1.0), left, rp_log1p(C(-0.5) * rp_erfc(-high)));
}

DEVICE real rp_tanh(real x) {
    const real m = rp_expm1(C(-2.0) * rp_fabs(x));
    return rp_sign(x) * (-m / (C(2.0) + m));
}

DEVICE real rp_sigmoid(real x) {
    const real e = rp_exp(-rp_fabs(x));
    return rp_select(x >= C(0.0), rp_splat(C(1.0)), e) / (C(1.0) + e);
}

DEVICE real rp_softplus(real x) {
    return rp_maximum0(x) + rp_log1p_unit(rp_exp(-rp_fabs(x)));
}

/* below -37, log(log(1 + e^x)) = x to double precision */
DEVICE real rp_log_softplus(real x) {
    const real safe = rp_select(x < C(-37.0), rp_splat(C(0.0)), x);
    return rp_select(x < C(-37.0), x, rp_log(rp_softplus(safe)));
}

DEVICE real rp_softplus_score(real x) {
    const real safe = rp_select(x < C(-37.0), rp_splat(C(0.0)), x);
    const real e = rp_exp(-rp_fabs(safe));
    const real value = rp_select(safe >= C(0.0), rp_splat(C(1.0)), e) /
                       ((C(1.0) + e) * (rp_maximum0(safe) + rp_log1p_unit(e)));
    return rp_select(x < C(-37.0), rp_splat(C(1.0)), value);
}
