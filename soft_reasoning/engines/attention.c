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
enum { QUERIES = 6, CHUNK = 8 * QUERIES }; /* PAGE: positions a page, a multiple of LANES, given */
#define NOTHING -1e30f /* the logarithm of a sum without terms; finite, so that it can be merged */

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
            const vec *row = (const vec *)(b + k * n + j);                                                \
            UNROLL for (int c = 0; c < (WIDTH); c++) __builtin_prefetch(next + k * n + j + c * LANES);    \
            UNROLL for (int i = 0; i < m; i++)                                                            \
                UNROLL for (int c = 0; c < (WIDTH); c++) sum[i][c] += a[i][k] * row[c];                   \
        }                                                                                                 \
        UNROLL for (int i = 0; i < m; i++)                                                                \
            UNROLL for (int c = 0; c < (WIDTH); c++) ((vec *)(out[i] + j))[c] = sum[i][c];                \
    }

/* The columns from j on, fewer than LANES, of one row. Compiled once for all rows: how a compiler treats
 * plain numbers may depend on how many rows it sees. */
static __attribute__((noinline)) void rest_of(const float *a, const float *b, i64 depth, i64 n, i64 j, int more,
                                              float *out)
{
    for (; j < n; j++) {
        float sum = more ? out[j] : 0;
        for (i64 k = 0; k < depth; k++) sum += a[k] * b[k * n + j];
        out[j] = sum;
    }
}

/* out (m, n) = a (m, depth) b (depth, n), added to what is there if `more`; `next`, of b's shape, comes after it
 * and is fetched meanwhile. */
INLINE void product_of(int m, const float *const *a, const float *b, const float *next, i64 depth, i64 n, int more,
                       float *const *out)
{
    i64 j = 0;
    COLUMNS(WIDE)
    COLUMNS(2)
    COLUMNS(1)
    for (int i = 0; i < m && j < n; i++) rest_of(a[i], b, depth, n, j, more, out[i]);
}

static void product(int m, const float *const *a, const float *b, const float *next, i64 depth, i64 n, int more,
                    float *const *out)
{
    switch (m) {
    case 1: product_of(1, a, b, next, depth, n, more, out); break;
    case 2: product_of(2, a, b, next, depth, n, more, out); break;
    case 3: product_of(3, a, b, next, depth, n, more, out); break;
    case 4: product_of(4, a, b, next, depth, n, more, out); break;
    case 5: product_of(5, a, b, next, depth, n, more, out); break;
    case 6: product_of(6, a, b, next, depth, n, more, out); break;
    }
}

INLINE float sum_of(vec x)
{
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
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

/* cap * tanh(x / cap) */
INLINE vec capped(vec x, float cap)
{
    const ivec sign = (ivec)x & INT32_MIN;
    const vec e = exp_of((vec)((ivec)x | INT32_MIN) * (2.0f / cap));
    return (vec)((ivec)((1.0f - e) / (1.0f + e) * cap) | sign);
}

/* scores (room for `end` and a multiple of LANES) become exp(score - most) from `first` to n and 0 elsewhere;
 * their sum and `most`. */
static float weigh(float *scores, i64 first, i64 n, i64 end, float cap, float *most)
{
    const i64 room = (end + LANES - 1) / LANES * LANES;
    if (first >= n) {
        memset(scores, 0, sizeof(float) * room);
        *most = NOTHING;
        return 0;
    }
    if (cap > 0)
        for (i64 j = 0; j < room; j += LANES) *(vec *)(scores + j) = capped(*(vec *)(scores + j), cap);
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

/* A layer's keys and values: page p is the p % pages-th of slab p / pages and holds, head by head, keys
 * (width, PAGE) and values (PAGE, value_width). */
typedef struct {
    float *const *slabs;
    i64 pages, heads, width, value_width;
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
    return layer->slabs[p / layer->pages] + (p % layer->pages * layer->heads + head) * size;
}

/* The tile (keys of a page, or values) that comes behind the `tile`-th when a head of sequence s is read, all
 * of its `pages` pages' keys and then their values. */
static const float *tile_behind(const Layer *layer, const Reading *reading, i64 s, i64 head, i64 pages, i64 tile)
{
    if (++tile < pages) return page_of(layer, reading, s, tile, head);
    if (tile < 2 * pages) return page_of(layer, reading, s, tile - pages, head) + PAGE * layer->width;
    if (++head == layer->heads) head = 0, s++;
    return page_of(layer, reading, s < reading->count ? s : 0, 0, head);
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

/* Merge into out (tokens * heads * repeat, value_width) and lse (tokens * heads * repeat), the logarithm of the
 * softmax's denominator, what the queries q (tokens * heads * repeat, width) of tokens at `positions` find in
 * the sequences that they read: keys up to their own position, the last `window` of them. Scores are capped if
 * cap > 0. Their own keys and values are kept before, if given. Nonzero where memory is missing. */
int attend(const Layer *layer, const Reading *reading, const float *keys, const float *values, const float *q,
           const i64 *positions, i64 repeat, i64 window, double cap, float *out, float *lse, i64 threads)
{
    const i64 heads = layer->heads, width = layer->width, value_width = layer->value_width;
    const i64 chunks = (reading->most * repeat + CHUNK - 1) / CHUNK;
    const int alone = reading->most == 1 && chunks == 1; /* then what is kept is read at once, by the same task */
    int failed = 0;
    if (keys && !alone) keep(layer, reading, keys, values, positions, threads);
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(| : failed)
    for (i64 task = 0; task < reading->count * heads * chunks; task++) {
        const i64 s = task / (heads * chunks), head = task / chunks % heads, start = reading->starts[s];
        const i64 *readers = reading->tokens + reading->bounds[s];
        const i64 tall = (reading->bounds[s + 1] - reading->bounds[s]) * repeat;
        const i64 begin = task % chunks * CHUNK, end = tall < begin + CHUNK ? tall : begin + CHUNK;
        const i64 room = reading->room * PAGE;
        if (begin >= end) continue;
        float *memory = malloc(sizeof(float) * QUERIES * (room + value_width));
        if (!memory) {
            failed = 1;
            continue;
        }
        if (keys && alone) keep_head(layer, reading, keys, values, positions, s, readers[0], head);
        for (i64 first = begin; first < end; first += QUERIES) {
            const int m = end - first < QUERIES ? (int)(end - first) : QUERIES;
            const float *from[QUERIES], *weights[QUERIES];
            float *scores[QUERIES], *found[QUERIES], most[QUERIES], sum[QUERIES];
            i64 at[QUERIES], unseen[QUERIES], seen[QUERIES], all = 0, hidden = INT64_MAX;
            for (int i = 0; i < m; i++) {
                const i64 token = readers[(first + i) / repeat], last = positions[token] - start + 1;
                at[i] = (token * heads + head) * repeat + (first + i) % repeat;
                from[i] = q + at[i] * width;
                seen[i] = last < reading->lengths[s] ? last : reading->lengths[s];
                unseen[i] = last - window;
                all = seen[i] > all ? seen[i] : all;
                hidden = unseen[i] < hidden ? unseen[i] : hidden;
                found[i] = memory + QUERIES * room + i * value_width;
            }
            const i64 pages = (all + PAGE - 1) / PAGE, old = hidden > 0 ? hidden / PAGE : 0; /* nobody sees those */
            for (i64 page = old; page < pages; page++) {
                const float *tile = page_of(layer, reading, s, page, head);
                const float *next = tile_behind(layer, reading, s, head, pages, page);
                for (int i = 0; i < m; i++) scores[i] = memory + i * room + page * PAGE;
                product(m, from, tile, next, width, PAGE, 0, scores);
            }
            for (int i = 0; i < m; i++)
                sum[i] = weigh(memory + i * room, unseen[i], seen[i], all, (float)cap, &most[i]);
            for (i64 page = old; page < pages; page++) {
                const float *tile = page_of(layer, reading, s, page, head) + PAGE * width;
                const float *next = tile_behind(layer, reading, s, head, pages, pages + page);
                const i64 left = all - page * PAGE;
                for (int i = 0; i < m; i++) weights[i] = memory + i * room + page * PAGE;
                product(m, weights, tile, next, left < PAGE ? left : PAGE, value_width, page > old, found);
            }
            for (int i = 0; i < m; i++) {
                /* Weights exp(lse) of what was merged before and sum * exp(most) of this. */
                float *into = out + at[i] * value_width, had = lse[at[i]];
                if (seen[i] <= 0 || unseen[i] >= seen[i]) continue;
                const float top = had > most[i] ? had : most[i];
                const float before = expf(had - top), now = expf(most[i] - top), both = before + sum[i] * now;
                const float less = before / both, add = now / both;
                for (i64 c = 0; c < value_width; c++) into[c] = less * into[c] + add * found[i][c];
                lse[at[i]] = top + logf(both);
            }
        }
        free(memory);
    }
    return failed;
}
