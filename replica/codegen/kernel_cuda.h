/* CUDA as a platform: `real` is one number, a lane is a thread. No system headers: NVRTC has none.

   SINGLE selects single precision, where the elementary functions are CUDA's own. */

#define LANES 1
#define SMALL _Pragma("unroll") /* loops over ranks and sectors */
#define DEVICE __device__ __forceinline__
#if FIXED_LENGTH /* everything in one function: arrays of known size can live in registers */
#define ROUTINE DEVICE
#else
#define ROUTINE __device__ __noinline__
#endif
#define restrict __restrict__

#if SINGLE
#define C(x) x##f
#define SLACK 1e-6f
typedef float scalar;
#define INFINITE __int_as_float(0x7f800000)
#else
#define C(x) x
#define SLACK 1e-14
typedef double scalar;
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)
#endif

typedef long long index_t;
typedef scalar real;
typedef long long word;
typedef bool mask;

DEVICE real rp_splat(scalar x) { return x; }
DEVICE real rp_select(mask m, real a, real b) { return m ? a : b; }
DEVICE mask rp_not(mask m) { return !m; }
DEVICE mask rp_mask(int on) { return on != 0; }
DEVICE int rp_any(mask m) { return m; }
DEVICE scalar rp_first(real x) { return x; }
DEVICE real rp_load(const scalar *p) { return *p; }
DEVICE void rp_store(scalar *p, real x) { *p = x; }
DEVICE scalar rp_total(real x) { return x; }

#if SINGLE
DEVICE real rp_fabs(real x) { return fabsf(x); }
DEVICE real rp_sqrt(real x) { return sqrtf(x); }
DEVICE real rp_sin(real x) { return sinf(x); }
DEVICE real rp_cos(real x) { return cosf(x); }
DEVICE real rp_acos(real x) { return acosf(x); }
DEVICE real rp_exp(real x) { return expf(x); }
DEVICE real rp_expm1(real x) { return expm1f(x); }
DEVICE real rp_log(real x) { return logf(x); }
DEVICE real rp_log1p(real x) { return log1pf(x); }
DEVICE real rp_log1p_unit(real x) { return log1pf(x); }
DEVICE real rp_erf(real x) { return erff(x); }
DEVICE real rp_erfc(real x) { return erfcf(x); }
DEVICE real rp_erfcx(real x) { return erfcxf(x); }
#else
DEVICE word rp_word(real x) { return __double_as_longlong(x); }
DEVICE real rp_bits(word w) { return __longlong_as_double(w); }
DEVICE real rp_fabs(real x) { return fabs(x); }
DEVICE real rp_sqrt(real x) { return sqrt(x); }
DEVICE real rp_sin(real x) { return sin(x); }
DEVICE real rp_cos(real x) { return cos(x); }
DEVICE real rp_acos(real x) { return acos(x); }
#endif
