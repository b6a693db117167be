/* Attention of tokens over keys and values in pages; float32, on the CPU.
 *
 * A library's matrix product reads a few queries' keys at a quarter of the memory's speed; here they are read
 * once for up to QUERIES of them, and scores, softmax and the merging of what a token reads stay in the cache.
 * Every number depends on one token alone and is summed in the same order whatever its neighbours are.
 *
 * Indices are int64, arrays dense; `repeat` query heads share each of `heads` key heads.
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
/* Given: PAGE, positions a page, a multiple of LANES; SLAB, pages a slab. */
enum { QUERIES = 6, CHUNK = 8 * QUERIES, SPAN = 8, LINE = 16 };
#define FAR 2e6f

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int64_t i64;
typedef float four __attribute__((vector_size(16)));
#define UNROLL _Pragma("GCC unroll 8")
#define INLINE static inline __attribute__((always_inline))

/* Columns j.. of out[i][j] (+)= sum over k of a[i][k] * b[k][j], WIDTH * LANES at a time. */
#define COLUMNS(WIDTH)                                                                                    \
    for (; j + (WIDTH) * LANES <= n; j += (WIDTH) * LANES) {                                              \
        vec sum[QUERIES][WIDTH];                                                                          \
        UNROLL for (int i = 0; i < m; i++)                                                                \
            UNROLL for (int c = 0; c < (WIDTH); c++) sum[i][c] = more ? ((vec *)(out[i] + j))[c] : (vec){0}; \
        for (i64 k = 0; k < depth; k++) {                                                                 \
            const vec *row = (const vec *)(b + k * stride + j);                                           \
            UNROLL for (int c = 0; c < (WIDTH); c++) __builtin_prefetch(next + k * stride + j + c * LANES); \
            UNROLL for (int i = 0; i < m; i++)                                                            \
                UNROLL for (int c = 0; c < (WIDTH); c++) sum[i][c] += a[i][k] * row[c];                   \
        }                                                                                                 \
        UNROLL for (int i = 0; i < m; i++)                                                                \
            UNROLL for (int c = 0; c < (WIDTH); c++) ((vec *)(out[i] + j))[c] = sum[i][c];                \
    }

/* The columns from j on, fewer than LANES, of one row. Compiled once for all rows: how a compiler treats
 * plain numbers may depend on how many rows it sees. */
static __attribute__((noinline)) void rest_of(const float *a, const float *b, i64 depth, i64 stride, i64 n, i64 j,
                                              int more, float *out)
{
    for (; j < n; j++) {
        float sum = more ? out[j] : 0;
        for (i64 k = 0; k < depth; k++) sum += a[k] * b[k * stride + j];
        out[j] = sum;
    }
}

/* out (m, n) = a (m, depth) times the first n columns of b (depth, stride), added to what is there if `more`;
 * what comes after b begins at `next` and is fetched meanwhile, as much of it as of b. */
INLINE void product_of(int m, const float *const *a, const float *b, const float *next, i64 depth, i64 stride,
                       i64 n, int more, float *const *out)
{
    i64 j = 0;
    COLUMNS(WIDE)
    COLUMNS(2)
    COLUMNS(1)
    for (int i = 0; i < m && j < n; i++) rest_of(a[i], b, depth, stride, n, j, more, out[i]);
}

static void product(int m, const float *const *a, const float *b, const float *next, i64 depth, i64 stride,
                    i64 n, int more, float *const *out)
{
    switch (m) {
    case 1: product_of(1, a, b, next, depth, stride, n, more, out); break;
    case 2: product_of(2, a, b, next, depth, stride, n, more, out); break;
    case 3: product_of(3, a, b, next, depth, stride, n, more, out); break;
    case 4: product_of(4, a, b, next, depth, stride, n, more, out); break;
    case 5: product_of(5, a, b, next, depth, stride, n, more, out); break;
    case 6: product_of(6, a, b, next, depth, stride, n, more, out); break;
    }
}

INLINE float sum_of(vec x)
{
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}

/* y where it is not a number. */
INLINE vec larger_of(vec x, vec y)
{
    const ivec more = x > y;
    return (vec)(((ivec)x & more) | ((ivec)y & ~more));
}

INLINE int32_t most_of(ivec x)
{
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] = x[i] > x[i + half] ? x[i] : x[i + half];
    return x[0];
}

/* exp(x) = y * 2^power, y from 0.7 to 1.5 and right to 2 units in the last place; |x| counts as FAR at most. */
INLINE vec exp_of(vec x, ivec *power)
{
    const vec far = (vec){0} - FAR;
    x = -larger_of(far, -larger_of(far, x));
    const vec shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f; /* rounds: 1.5 * 2^23 */
    const vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec y = r * 1.9875691500e-4f + 1.3981999507e-3f; /* Cephes' expf */
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    *power = __builtin_convertvector(n, ivec);
    return y * r * r + r + 1.0f;
}

/* 2^power for power <= 0; 0 below the normal numbers. */
INLINE vec power_of(ivec power) { return (vec)(((power + 127) << 23) & (power > -127)); }

/* cap * tanh(x / cap) */
INLINE vec capped(vec x, float cap)
{
    const ivec sign = (ivec)x & INT32_MIN;
    ivec power;
    vec e = exp_of((vec)((ivec)x | INT32_MIN) * (2.0f / cap), &power);
    e *= power_of(power);
    return (vec)((ivec)((1.0f - e) / (1.0f + e) * cap) | sign);
}

/* What a query has met so far: its sum of exp(score), in lanes, is sum * 2^power, power that of the largest. Such
 * factors change no digits, so that it does not matter in which pieces keys are read. */
typedef struct {
    vec sum;
    int32_t power;
} Met;

/* 2^power as above, of one. */
INLINE float factor_of(int32_t power) { return power_of((ivec){0} + power)[0]; }

/* A query's scores over n keys (n <= SPAN * PAGE) become weights exp(score) / 2^power, 0 for those that it does not
 * see, which are all but `first` to `end`; where they raise power, what was found with earlier weights (width)
 * shrinks. */
static void weigh(float *scores, i64 first, i64 end, i64 n, float cap, Met *met, float *found, i64 width)
{
    const i64 room = (n + LANES - 1) / LANES * LANES;
    ivec powers[SPAN * PAGE / LANES], most = (ivec){0} + met->power;
    if (cap > 0)
        for (i64 j = 0; j < n; j += LANES) *(vec *)(scores + j) = capped(*(vec *)(scores + j), cap);
    for (i64 j = 0; j < first && j < n; j++) scores[j] = -INFINITY;
    for (i64 j = end > 0 ? end : 0; j < room; j++) scores[j] = -INFINITY;
    for (i64 j = 0; j < n; j += LANES) {
        const vec x = *(vec *)(scores + j), y = exp_of(x, &powers[j / LANES]);
        const ivec more = powers[j / LANES] > most;
        most = (powers[j / LANES] & more) | (most & ~more);
        *(vec *)(scores + j) = (vec)((ivec)y & (x != -INFINITY));
    }
    const int32_t power = most_of(most);
    if (power > met->power) {
        const float less = factor_of(met->power - power);
        met->power = power;
        met->sum *= less;
        for (i64 c = 0; c < width; c++) found[c] *= less;
    }
    for (i64 j = 0; j < n; j += LANES) {
        *(vec *)(scores + j) *= power_of(powers[j / LANES] - power);
        met->sum += *(vec *)(scores + j);
    }
}

/* A layer's keys and values: page p is the p % SLAB-th of slab p / SLAB and holds, head by head, keys
 * (width, PAGE) and values (PAGE, value_width): what a token reads of a page lies side by side. */
typedef struct {
    float *const *slabs;
    i64 heads, width, value_width;
} Layer;

/* Sequences of keys in pages, and tokens that read them. Sequence s of `count` has at most lengths[s] keys from
 * position starts[s] on, in pages table[s * room] onwards, and tokens[bounds[s]] to
 * tokens[bounds[s + 1] - 1] read it, at most `most` of them. */
typedef struct {
    const i64 *table, *lengths, *starts, *bounds, *tokens;
    i64 count, room, most;
} Reading;

static float *page_of(const Layer *layer, const Reading *reading, i64 s, i64 page, i64 head)
{
    const i64 p = reading->table[s * reading->room + page], size = PAGE * (layer->width + layer->value_width);
    return layer->slabs[p / SLAB] + (p % SLAB * layer->heads + head) * size;
}

/* Write token's keys (tokens, heads, width) and values (tokens, heads, value_width) of one head to the pages of
 * sequence s. */
static void keep_head(const Layer *layer, const Reading *reading, const float *keys, const float *values,
                      const i64 *positions, i64 s, i64 token, i64 head)
{
    const i64 width = layer->width, value_width = layer->value_width, at = positions[token] - reading->starts[s];
    const float *from = keys + (token * layer->heads + head) * width;
    float *page = page_of(layer, reading, s, at / PAGE, head);
    for (i64 c = 0; c < width; c++) page[c * PAGE + at % PAGE] = from[c];
    memcpy(page + PAGE * width + at % PAGE * value_width, values + (token * layer->heads + head) * value_width,
           sizeof(float) * value_width);
}

/* Write the keys (tokens, heads, width) and values (tokens, heads, value_width) of tokens to the sequences that
 * they read, at their positions (tokens). */
void keep(const Layer *layer, const Reading *reading, const float *keys, const float *values,
          const i64 *positions, i64 threads)
{
#pragma omp parallel for num_threads(threads)
    for (i64 s = 0; s < reading->count; s++)
        for (i64 i = reading->bounds[s]; i < reading->bounds[s + 1]; i++)
            for (i64 head = 0; head < layer->heads; head++)
                keep_head(layer, reading, keys, values, positions, s, reading->tokens[i], head);
}

/* What `attend` is asked, and what it answers. */
typedef struct {
    const Layer *layer;
    const Reading *reading;
    const float *keys, *values, *q;
    const i64 *positions;
    i64 repeat, window;
    float cap, *out, *sums;
    int32_t *powers;
} Call;

/* For m queries from the `first`-th on of those that read sequence s, and key heads `head` to `head + together`;
 * `met` and `found` have room for them. The keys and values of the one token that reads s are kept before, if
 * given. */
static void attend_some(const Call *call, i64 s, i64 head, i64 together, i64 first, int m, Met *met, float *found)
{
    const Layer *layer = call->layer;
    const Reading *reading = call->reading;
    const i64 width = layer->width, value_width = layer->value_width, repeat = call->repeat;
    const i64 *readers = reading->tokens + reading->bounds[s];
    float scores[QUERIES][SPAN * PAGE], *weights[QUERIES], *sums[QUERIES];
    const float *queries[QUERIES];
    i64 at[QUERIES], unseen[QUERIES], seen[QUERIES], all = 0, hidden = INT64_MAX;
    for (int i = 0; i < m; i++) {
        const i64 token = readers[(first + i) / repeat], last = call->positions[token] - reading->starts[s] + 1;
        at[i] = (token * layer->heads + head) * repeat + (first + i) % repeat;
        seen[i] = last < reading->lengths[s] ? last : reading->lengths[s];
        unseen[i] = last - call->window;
        all = seen[i] > all ? seen[i] : all;
        hidden = unseen[i] < hidden ? unseen[i] : hidden;
    }
    for (i64 i = 0; i < m * together; i++) met[i] = (Met){{0}, INT32_MIN / 2};
    memset(found, 0, sizeof(float) * m * together * value_width);
    const i64 pages = (all + PAGE - 1) / PAGE, old = hidden > 0 ? hidden / PAGE : 0; /* nobody sees those */
    /* One page at a time where all heads read it on and on; else several, which takes fewer steps. */
    const i64 span = together > 1 ? 1 : SPAN;
    for (i64 page = old; page < pages; page += span) {
        const i64 count = pages - page < span ? pages - page : span;
        const i64 there = all - page * PAGE < count * PAGE ? all - page * PAGE : count * PAGE;
        const float *tiles[SPAN + 1]; /* and the one behind, of the next sequence behind the last */
        for (i64 p = 0; p < count; p++) tiles[p] = page_of(layer, reading, s, page + p, head);
        if (page + count < pages) tiles[count] = page_of(layer, reading, s, page + count, head);
        else tiles[count] = page_of(layer, reading, s + 1 < reading->count ? s + 1 : 0, 0, head);
        for (i64 h = 0; h < together; h++) {
            for (int i = 0; i < m; i++) {
                queries[i] = call->q + (at[i] + h * repeat) * width;
                sums[i] = found + (h * m + i) * value_width;
            }
            if (call->keys && page + count == pages)
                keep_head(layer, reading, call->keys, call->values, call->positions, s, readers[0], head + h);
            for (i64 p = 0; p < count; p++) {
                const i64 n = there - p * PAGE < PAGE ? there - p * PAGE : PAGE;
                const float *next = p + 1 < count ? tiles[p + 1] : tiles[0] + PAGE * width;
                for (int i = 0; i < m; i++) weights[i] = scores[i] + p * PAGE;
                product(m, queries, tiles[p], next, width, PAGE, (n + LANES - 1) / LANES * LANES, 0, weights);
            }
            for (int i = 0; i < m; i++) {
                const i64 begin = unseen[i] - page * PAGE, end = seen[i] - page * PAGE;
                weigh(scores[i], begin, end, there, call->cap, &met[h * m + i], sums[i], value_width);
            }
            for (i64 p = 0; p < count; p++) {
                const i64 n = there - p * PAGE < PAGE ? there - p * PAGE : PAGE;
                const float *values = tiles[p] + PAGE * width, *next = tiles[p + 1] + PAGE * width;
                tiles[p] = values + PAGE * value_width; /* the next head's */
                if (p + 1 == count) next = h + 1 < together ? tiles[0] : tiles[count];
                for (int i = 0; i < m; i++) weights[i] = scores[i] + p * PAGE;
                product(m, (const float *const *)weights, values, next, n, value_width, value_width, 1, sums);
                /* What of the next tile a page that is not full has not fetched. */
                for (i64 j = n * value_width; j < PAGE * width; j += LINE) __builtin_prefetch(next + j);
            }
        }
    }
    for (i64 i = 0; i < m * together; i++) {
        const float total = sum_of(met[i].sum);
        if (total == 0) continue; /* it sees none */
        const i64 here = at[i % m] + i / m * repeat;
        float *out = call->out + here * value_width;
        const float had = call->sums[here];
        const int32_t power = had != 0 && call->powers[here] > met[i].power ? call->powers[here] : met[i].power;
        const float before = had != 0 ? had * factor_of(call->powers[here] - power) : 0;
        const float factor = factor_of(met[i].power - power), both = before + total * factor;
        for (i64 c = 0; c < value_width; c++)
            out[c] = before / both * out[c] + factor / both * found[i * value_width + c];
        call->sums[here] = both;
        call->powers[here] = power;
    }
}

/* Merge into out (tokens * heads * repeat, value_width) and the softmax's denominator sums * 2^powers (tokens * heads
 * * repeat), 0 at first, what the queries q (tokens * heads * repeat, width) of tokens at `positions` find in the
 * sequences that they read: keys up to their own position, the last `window` of them. Scores are capped if cap > 0.
 * Their own keys and values are kept before, if given. Nonzero where memory is missing. */
int attend(const Layer *layer, const Reading *reading, const float *keys, const float *values, const float *q,
           const i64 *positions, i64 repeat, i64 window, double cap, float *out, float *sums, int32_t *powers,
           i64 threads)
{
    const i64 tallest = reading->most * repeat, chunks = (tallest + CHUNK - 1) / CHUNK;
    /* A task takes all heads where it reads every page once, as what lies side by side is fetched faster; else
     * one, whose pages stay in the cache. */
    const i64 together = tallest <= QUERIES ? layer->heads : 1, tasks = layer->heads / together * chunks;
    const int alone = reading->most == 1 && chunks == 1; /* then the task that reads a sequence keeps */
    const float *new = alone ? keys : NULL;
    const Call call = {layer, reading, new, values, q, positions, repeat, window, (float)cap, out, sums, powers};
    int failed = 0;
    if (keys && !alone) keep(layer, reading, keys, values, positions, threads);
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        Met *met = malloc(QUERIES * together * (sizeof(Met) + sizeof(float) * layer->value_width));
        float *found = (float *)(met + QUERIES * together);
        failed = !met;
#pragma omp for schedule(dynamic)
        for (i64 task = 0; task < reading->count * tasks; task++) {
            const i64 s = task / tasks, head = task % tasks / chunks, begin = task % chunks * CHUNK;
            const i64 tall = (reading->bounds[s + 1] - reading->bounds[s]) * repeat;
            const i64 end = tall < begin + CHUNK ? tall : begin + CHUNK;
            for (i64 first = begin; met && first < end; first += QUERIES) {
                const i64 left = end - first;
                attend_some(&call, s, head, together, first, left < QUERIES ? (int)left : QUERIES, met, found);
            }
        }
        free(met);
    }
    return failed;
}
