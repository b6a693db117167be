/* Attention of one new token a row over keys and values in the shape of a tree; float32, on the CPU.
 *
 * A library's matrix product reads a few queries' keys at a quarter of the memory's speed; here they are read
 * once for up to QUERIES of them, and scores, softmax and the merging of a row's parts stay in the cache.
 * Every number depends on one row alone and is summed in the same order whatever its neighbours are.
 *
 * Indices are int64, arrays dense; "groups" are pairs of a row (or prefix) and a key head, and `repeat`
 * query heads share a key head.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#define WIDE 4
#elif defined(__AVX__)
#define LANES 8
#define WIDE 2
#else
#define LANES 4
#define WIDE 4
#endif
enum { QUERIES = 6, CHUNK = 8 * QUERIES }; /* TILE: a multiple of LANES, given */
#define NOTHING -1e30f /* the logarithm of a sum without terms; finite, so that it can be merged */

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int64_t i64;
typedef float four __attribute__((vector_size(16)));
#define UNROLL _Pragma("GCC unroll 8")
#define INLINE static inline __attribute__((always_inline))

/* Columns j.. of out[i][j] = sum over k of a[i][k] * b[k][j], WIDTH * LANES at a time. */
#define COLUMNS(WIDTH)                                                                                    \
    for (; j + (WIDTH) * LANES <= n; j += (WIDTH) * LANES) {                                              \
        vec sum[QUERIES][WIDTH];                                                                          \
        UNROLL for (int i = 0; i < m; i++)                                                                \
            UNROLL for (int c = 0; c < (WIDTH); c++) sum[i][c] = (vec){0};                                \
        for (i64 k = 0; k < depth; k++) {                                                                 \
            const vec *row = (const vec *)(b + k * n + j);                                                \
            UNROLL for (int i = 0; i < m; i++)                                                            \
                UNROLL for (int c = 0; c < (WIDTH); c++) sum[i][c] += a[i][k] * row[c];                   \
        }                                                                                                 \
        UNROLL for (int i = 0; i < m; i++)                                                                \
            UNROLL for (int c = 0; c < (WIDTH); c++) ((vec *)(out[i] + j))[c] = sum[i][c];                \
    }

/* The columns from j on, fewer than LANES, of one row. Compiled once for all rows: how a compiler treats
 * plain numbers may depend on how many rows it sees. */
static __attribute__((noinline)) void rest_of(const float *a, const float *b, i64 depth, i64 n, i64 j,
                                              float *out)
{
    for (; j < n; j++) {
        float sum = 0;
        for (i64 k = 0; k < depth; k++) sum += a[k] * b[k * n + j];
        out[j] = sum;
    }
}

/* out (m, n) = a (m, depth) b (depth, n). */
INLINE void product_of(int m, const float *const *a, const float *b, i64 depth, i64 n, float *const *out)
{
    i64 j = 0;
    COLUMNS(WIDE)
    COLUMNS(2)
    COLUMNS(1)
    for (int i = 0; i < m && j < n; i++) rest_of(a[i], b, depth, n, j, out[i]);
}

static void product(int m, const float *const *a, const float *b, i64 depth, i64 n, float *const *out)
{
    switch (m) {
    case 1: product_of(1, a, b, depth, n, out); break;
    case 2: product_of(2, a, b, depth, n, out); break;
    case 3: product_of(3, a, b, depth, n, out); break;
    case 4: product_of(4, a, b, depth, n, out); break;
    case 5: product_of(5, a, b, depth, n, out); break;
    case 6: product_of(6, a, b, depth, n, out); break;
    }
}

/* The sum of each four lanes. */
INLINE four quarters_of(vec x)
{
    four quarters[LANES / 4];
    memcpy(quarters, &x, sizeof x);
    UNROLL for (int i = 1; i < LANES / 4; i++) quarters[0] += quarters[i];
    return quarters[0];
}

INLINE float sum_of(vec x)
{
    const four sum = quarters_of(x);
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* Each four lanes of a (p, q, r, s) and b (t, u, v, w) become (p, t, q, u) + (r, v, s, w), or, from such sums,
 * (p, q, t, u) + (r, s, v, w): after both, the four sums of four vectors in each four lanes. */
#if LANES == 16
#define EACH(X) X(0), X(4), X(8), X(12)
#elif LANES == 8
#define EACH(X) X(0), X(4)
#else
#define EACH(X) X(0)
#endif
#if defined(__clang__)
#define SHUFFLE(a, b, X) __builtin_shufflevector(a, b, EACH(X))
#else
#define SHUFFLE(a, b, X) __builtin_shuffle(a, b, (ivec){EACH(X)})
#endif
#define LOW(i) i, i + LANES, i + 1, i + 1 + LANES
#define HIGH(i) i + 2, i + 2 + LANES, i + 3, i + 3 + LANES
#define FRONT(i) i, i + 1, i + LANES, i + 1 + LANES
#define BACK(i) i + 2, i + 3, i + 2 + LANES, i + 3 + LANES

/* scores[j] = q . keys[j] for n keys (n, width), and something in up to three scores behind them. */
static void dots(const float *q, const float *keys, i64 n, i64 width, float *scores)
{
    for (i64 j = 0; j < n; j += 4) {
        const float *key[4];
        vec sum[4];
        four total;
        UNROLL for (int i = 0; i < 4; i++) {
            key[i] = keys + (j + i < n ? j + i : n - 1) * width;
            sum[i] = (vec){0};
        }
        i64 c = 0;
        for (; c + LANES <= width; c += LANES)
            UNROLL for (int i = 0; i < 4; i++) sum[i] += *(const vec *)(q + c) * *(const vec *)(key[i] + c);
        UNROLL for (int i = 0; i < 4; i += 2) sum[i] = SHUFFLE(sum[i], sum[i + 1], LOW) + SHUFFLE(sum[i], sum[i + 1], HIGH);
        total = quarters_of(SHUFFLE(sum[0], sum[2], FRONT) + SHUFFLE(sum[0], sum[2], BACK));
        for (; c < width; c++)
            for (int i = 0; i < 4; i++) total[i] += q[c] * key[i][c];
        memcpy(scores + j, &total, sizeof total);
    }
}

/* exp(x) for x <= 0 to 2 units in the last place; 0 below the normal numbers. */
INLINE vec exp_of(vec x)
{
    const ivec normal = x > -87.0f;
    const ivec power = __builtin_convertvector((vec)((ivec)x & normal) * 1.44269504f - 0.5f, ivec);
    const vec n = __builtin_convertvector(power, vec);
    const vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec y = r * 1.9875691500e-4f + 1.3981999507e-3f; /* Cephes' expf */
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    y *= (vec)((power + 127) << 23);
    return (vec)((ivec)y & normal);
}

/* scores (n, room for a multiple of LANES) become exp(score - most), but 0 before `first`; their sum and
 * `most`. */
static float weigh(float *scores, i64 first, i64 n, float *most)
{
    i64 room = (n + LANES - 1) / LANES * LANES;
    if (first >= n) {
        memset(scores, 0, sizeof(float) * n);
        *most = NOTHING;
        return 0;
    }
    for (i64 j = 0; j < first; j++) scores[j] = -INFINITY;
    for (i64 j = n; j < room; j++) scores[j] = -INFINITY;
    vec best = *(vec *)scores;
    for (i64 j = LANES; j < room; j += LANES) {
        vec x = *(vec *)(scores + j);
        ivec larger = x > best;
        best = (vec)(((ivec)x & larger) | ((ivec)best & ~larger));
    }
    *most = best[0];
    for (int i = 1; i < LANES; i++) *most = best[i] > *most ? best[i] : *most;
    vec sum = {0};
    for (i64 j = 0; j < room; j += LANES) {
        vec weight = exp_of(*(vec *)(scores + j) - *most);
        *(vec *)(scores + j) = weight;
        sum += weight;
    }
    return sum_of(sum);
}

/* What one group's up to QUERIES queries need besides their inputs. */
typedef struct {
    float *scores[QUERIES], *found[QUERIES], *memory;
} Scratch;

static int take(Scratch *scratch, i64 n, i64 value_width)
{
    i64 room = (n + TILE - 1) / TILE * TILE;
    scratch->memory = malloc(sizeof(float) * QUERIES * (room + value_width));
    for (int i = 0; i < QUERIES; i++) {
        scratch->scores[i] = scratch->memory + i * room;
        scratch->found[i] = scratch->memory + QUERIES * room + i * value_width;
    }
    return scratch->memory != NULL;
}

/* Attention of rows' queries q (rows * heads * repeat, width) over their own keys (rows, heads, room, width)
 * and values (rows, heads, room, value_width), of which counts (rows) are there and the last `window` are seen,
 * to out (rows * heads * repeat, value_width) and the logarithm of the softmax's denominator, lse. Nonzero
 * where memory is missing. */
int attend_own(const float *q, const float *keys, const float *values, const i64 *counts, i64 rows, i64 heads,
               i64 repeat, i64 width, i64 value_width, i64 room, i64 window, float *out, float *lse,
               int threads)
{
    int failed = 0;
#pragma omp parallel for num_threads(threads) reduction(| : failed)
    for (i64 group = 0; group < rows * heads; group++) {
        Scratch scratch;
        const i64 n = counts[group / heads];
        if (!take(&scratch, n, value_width)) {
            failed = 1;
            continue;
        }
        /* The next group's beginnings: in front of them lies room that nobody reads. */
        for (int i = 0; i < 16; i++) {
            __builtin_prefetch(keys + (group + 1) * room * width + 16 * i);
            __builtin_prefetch(values + (group + 1) * room * value_width + 16 * i);
        }
        for (i64 first = 0; first < repeat; first += QUERIES) {
            const int m = repeat - first < QUERIES ? (int)(repeat - first) : QUERIES;
            const i64 at = group * repeat + first;
            float *to[QUERIES], most, sum[QUERIES];
            for (int i = 0; i < m; i++) {
                dots(q + (at + i) * width, keys + group * room * width, n, width, scratch.scores[i]);
                sum[i] = weigh(scratch.scores[i], n > window ? n - window : 0, n, &most);
                lse[at + i] = most + logf(sum[i]);
                to[i] = out + (at + i) * value_width;
            }
            product(m, (const float *const *)scratch.scores, values + group * room * value_width, n,
                    value_width, to);
            for (int i = 0; i < m; i++)
                for (i64 c = 0; c < value_width; c++) to[i][c] /= sum[i];
        }
        free(scratch.memory);
    }
    return failed;
}

/* Merge into out and lse, as above, what rows see of shared prefixes: keys (S, heads, room / TILE, width,
 * TILE), which memory gives fastest, and values (S, heads, room, value_width). Prefix p of `count` is the which[p]th of S, has lengths[p] keys from position
 * starts[p] on and is read by the rows members[bounds[p]] to members[bounds[p + 1] - 1], at most `widest` of
 * them, which are at positions (rows) and see `window` positions back. */
int attend_part(const float *q, const float *keys, const float *values, const i64 *which, const i64 *lengths,
                const i64 *starts, const i64 *bounds, const i64 *members, const i64 *positions, i64 count,
                i64 widest, i64 heads, i64 repeat, i64 width, i64 value_width, i64 room, i64 window,
                float *out, float *lse, int threads)
{
    const i64 chunks = (widest * repeat + CHUNK - 1) / CHUNK;
    int failed = 0;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(| : failed)
    for (i64 task = 0; task < count * heads * chunks; task++) {
        const i64 p = task / (heads * chunks), head = task / chunks % heads, chunk = task % chunks;
        const i64 n = lengths[p], tall = (bounds[p + 1] - bounds[p]) * repeat;
        const i64 end = tall < (chunk + 1) * CHUNK ? tall : (chunk + 1) * CHUNK;
        const float *k = keys + (which[p] * heads + head) * width * room;
        const float *v = values + (which[p] * heads + head) * value_width * room;
        Scratch scratch;
        if (chunk * CHUNK >= tall) continue;
        if (!take(&scratch, n, value_width)) {
            failed = 1;
            continue;
        }
        for (i64 first = chunk * CHUNK; first < end; first += QUERIES) {
            const int m = end - first < QUERIES ? (int)(end - first) : QUERIES;
            const float *from[QUERIES];
            i64 at[QUERIES], unseen[QUERIES];
            float most[QUERIES], sum[QUERIES];
            for (int i = 0; i < m; i++) {
                const i64 row = members[bounds[p] + (first + i) / repeat];
                at[i] = (row * heads + head) * repeat + (first + i) % repeat;
                from[i] = q + at[i] * width;
                unseen[i] = positions[row] - starts[p] - window + 1;
            }
            for (i64 j = 0; j < n; j += TILE) {
                float *to[QUERIES];
                for (int i = 0; i < m; i++) to[i] = scratch.scores[i] + j;
                product(m, from, k + j * width, width, TILE, to);
            }
            for (int i = 0; i < m; i++) sum[i] = weigh(scratch.scores[i], unseen[i], n, &most[i]);
            product(m, (const float *const *)scratch.scores, v, n, value_width, scratch.found);
            for (int i = 0; i < m; i++) {
                /* Weights exp(lse) of what was merged before and sum * exp(most) of this part. */
                float *into = out + at[i] * value_width, had = lse[at[i]];
                const float top = had > most[i] ? had : most[i];
                const float before = expf(had - top), now = expf(most[i] - top), all = before + sum[i] * now;
                const float keep = before / all, add = now / all;
                for (i64 c = 0; c < value_width; c++) into[c] = keep * into[c] + add * scratch.found[i][c];
                lse[at[i]] = top + logf(all);
            }
        }
        free(scratch.memory);
    }
    return failed;
}
