// Products of few rows, and one step of a Transformer's decoder, for the processor this is compiled on.
//
// A table W (outputs x inputs) is cut into panels of PANEL outputs, which lie in memory as they are multiplied: input by
// input (in eight bits, four inputs at a time). A tile of up to four rows and one panel is kept in registers. Threads
// are OpenMP's, the same as torch's; they share out panels, rows or heads, and wait for each other after each part.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <omp.h>

#if defined(__AVX512F__)
constexpr long LANES = 16;
#elif defined(__AVX__)
constexpr long LANES = 8;
#else
constexpr long LANES = 4;
#endif
constexpr long PANEL = 4 * LANES;
constexpr long TILE = 6;  // rows
typedef float Floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t Words __attribute__((vector_size(4 * LANES)));
#if defined(__AVX2__)
#include <immintrin.h>
#endif

// a b + c, rounded once wherever the processor can: in every tile alike, so that no row depends on its neighbours.
static inline Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

// Eight bits: sums of four products of unsigned weights (w + 128) and signed inputs.
#if defined(__AVX512VNNI__) || (defined(__AVX2__) && !defined(__AVX512F__))
#if defined(__AVX512VNNI__)
constexpr int LEVELS = 127;
typedef __m512i Ints;
static inline Ints load(const void* at) { return _mm512_loadu_si512(at); }
static inline Ints add_products(Ints sum, Ints weights, int32_t inputs) {
    return _mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi32(inputs));
}
static inline Floats as_floats(Ints x) { return (Floats)_mm512_cvtepi32_ps(x); }
#else
constexpr int LEVELS = 63;  // sums of two products must fit into sixteen bits
typedef __m256i Ints;
static inline Ints load(const void* at) { return _mm256_loadu_si256((const __m256i*)at); }
static inline Ints add_products(Ints sum, Ints weights, int32_t inputs) {
    const Ints pairs = _mm256_maddubs_epi16(weights, _mm256_set1_epi32(inputs));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
static inline Floats as_floats(Ints x) { return (Floats)_mm256_cvtepi32_ps(x); }
#endif
constexpr long LANES_OF_INTS = sizeof(Ints) / 4;
static_assert(LANES_OF_INTS == LANES, "a panel has the same width in floats and in bytes");
#define HAS_BYTES 1
#else
#define HAS_BYTES 0
#endif

extern "C" {

struct Map {
    int64_t inputs, outputs;
    int64_t bytes;        // whether the table has eight bits
    const void* packed;   // floats (panels, inputs, PANEL), or bytes (panels, inputs / 4, PANEL, 4)
    const float* scale;   // of each output, in eight bits
    const float* bias;    // or none; both padded to whole panels
};

struct Norm {
    const float *weight, *bias;
    double epsilon;
    int64_t centred;  // layer norm; otherwise by the root of the mean square
};

enum Activation : int64_t { NONE, RELU, GELU, GELU_TANH, SILU, SIGMOID };

struct Block {
    const Map *project, *output;
    const Map *ask, *answer;  // of cross-attention, or none
    const Map *expand, *gate, *contract;  // gate: or none
    Norm around_attention, around_cross, around_feed_forward;
    int64_t pre, activation;
};

struct Step {
    int64_t layers, rows, sentences, width, heads, groups, head_width, hidden;
    double scale, cross_scale;
    float* x;               // (rows, width), in and out
    float *keys, *values;   // (sentences, layers groups, capacity, head_width)
    int64_t capacity, filled;
    const float *sine, *cosine;  // (rows, head_width / 2) by which queries and keys are turned, or none
    int64_t interleaved;    // whether columns 2i and 2i + 1 are turned together; otherwise i and i + head_width / 2
    const int64_t* cell;    // (rows,) into which cell of its sentence each row writes
    const uint8_t* sees;    // (rows, filled), or none: all
    const float* const* memory_keys;    // of each layer (sentences, heads, cells, head_width), with these strides
    const float* const* memory_values;
    int64_t cells, sentence_stride, head_stride, cell_stride;
    const uint8_t* real;    // (sentences, cells), or none: all
    const Norm* last;       // or none
};

int64_t panel() { return PANEL; }
int64_t has_bytes() { return HAS_BYTES; }
int64_t levels() {
#if HAS_BYTES
    return LEVELS;
#else
    return 0;
#endif
}
}

static long padded(long number, long to) { return (number + to - 1) / to * to; }

struct Share {
    long first, last;
};

static Share share(long count, int thread, int threads) {
    return {count * thread / threads, count * (thread + 1) / threads};
}

// e^x to seven digits: 2^n times a polynomial of the rest.
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);  // a NaN stays one
    const float n = rintf(x * 1.44269504f);
    const float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * __builtin_bit_cast(float, ((int32_t)n + 127) << 23);
}

static void activate(float* x, long count, int64_t activation) {
    switch (activation) {
        case RELU:
            for (long i = 0; i < count; i++) x[i] = x[i] < 0.0f ? 0.0f : x[i];
            break;
        case GELU:
            for (long i = 0; i < count; i++) x[i] *= 0.5f * (1.0f + erff(x[i] * 0.70710678f));
            break;
        case GELU_TANH:
            for (long i = 0; i < count; i++) {
                const float twice = 1.59576912f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
                x[i] *= 1.0f - 1.0f / (exponential(twice) + 1.0f);
            }
            break;
        case SILU:
            for (long i = 0; i < count; i++) x[i] /= 1.0f + exponential(-x[i]);
            break;
        case SIGMOID:
            for (long i = 0; i < count; i++) x[i] = 1.0f / (1.0f + exponential(-x[i]));
            break;
    }
}

// y (rows, PANEL) = x W + b of one panel, in floats.
template <int rows>
static void tile(const float* x, long inputs, const float* panel, const float* bias, float* y, long stride) {
    Floats sum[rows][4];
    for (int row = 0; row < rows; row++)
        for (int part = 0; part < 4; part++)
            sum[row][part] = bias ? *(const Floats*)(bias + part * LANES) : Floats{};
    for (long i = 0; i < inputs; i++, panel += PANEL) {
        Floats weights[4];
        for (int part = 0; part < 4; part++) weights[part] = *(const Floats*)(panel + part * LANES);
        for (int row = 0; row < rows; row++)
            for (int part = 0; part < 4; part++) sum[row][part] = multiply_add(weights[part], Floats{} + x[row * inputs + i], sum[row][part]);
    }
    for (int row = 0; row < rows; row++)
        for (int part = 0; part < 4; part++) *(Floats*)(y + row * stride + part * LANES) = sum[row][part];
}

#if HAS_BYTES
// The same in eight bits: y = s_o m (sum_i (W + 128) q - 128 sum_i q) + b, with the scale m and the sum of each row.
template <int rows>
static void tile(const int8_t* x, long depth, const float* scales, const int32_t* sums,
                 const uint8_t* panel, const float* scale, const float* bias, float* y, long stride) {
    Ints sum[rows][4];
    for (int row = 0; row < rows; row++)
        for (int part = 0; part < 4; part++) sum[row][part] = (Ints)(Words{} - 128 * sums[row]);
    for (long i = 0; i < depth; i += 4, panel += 4 * PANEL) {
        Ints weights[4];
        for (int part = 0; part < 4; part++) weights[part] = load(panel + 4 * part * LANES);
        for (int row = 0; row < rows; row++) {
            int32_t inputs;
            memcpy(&inputs, x + row * depth + i, 4);
            for (int part = 0; part < 4; part++) sum[row][part] = add_products(sum[row][part], weights[part], inputs);
        }
    }
    for (int row = 0; row < rows; row++)
        for (int part = 0; part < 4; part++) {
            const Floats found = as_floats(sum[row][part]) * scales[row];
            const Floats more = bias ? *(const Floats*)(bias + part * LANES) : Floats{};
            *(Floats*)(y + row * stride + part * LANES) = multiply_add(found, *(const Floats*)(scale + part * LANES), more);
        }
}
#endif

// Rows in eight bits, each with a scale of its own.
struct Quantised {
    std::vector<int8_t> numbers;
    std::vector<float> scales;
    std::vector<int32_t> sums;
    long depth;

    void make_room(long rows, long inputs) {
        numbers.resize(std::max<size_t>(numbers.size(), rows * padded(inputs, 4)));
        scales.resize(std::max<size_t>(scales.size(), rows));
        sums.resize(std::max<size_t>(sums.size(), rows));
    }

    void set(const float* x, long row, long inputs) {
#if HAS_BYTES
        const float* from = x + row * inputs;
        int8_t* to = numbers.data() + row * depth;
        int32_t bits = __builtin_bit_cast(int32_t, 1e-30f), sum = 0;
#pragma omp simd reduction(max : bits)
        for (long i = 0; i < inputs; i++)  // in the order of their bits positive numbers grow, and NaN is the largest
            bits = std::max(bits, __builtin_bit_cast(int32_t, from[i]) & 0x7fffffff);
        const float largest = __builtin_bit_cast(float, bits), factor = LEVELS / largest;
        for (long i = 0; i < inputs; i++) to[i] = (int8_t)(int32_t)rintf(from[i] * factor);
        for (long i = inputs; i < depth; i++) to[i] = 0;
#pragma omp simd reduction(+ : sum)
        for (long i = 0; i < depth; i++) sum += to[i];
        sums[row] = sum;
        scales[row] = largest / LEVELS;
#endif
    }
};

// The threads of a parallel region, and room that they share.
struct Team {
    int thread, threads;
    Quantised& quantised;

    Share of(long count) const { return share(count, thread, threads); }

    void wait() const {
        if (threads > 1) {
#pragma omp barrier
        }
    }

    // y = phi(W x + b), plus what is in `add`, times what is in `times`
    void apply(const Map& map, const float* x, float* y, long rows, int64_t activation = NONE,
               const float* add = nullptr, const float* times = nullptr) const {
        if (map.bytes) {
            quantised.depth = padded(map.inputs, 4);  // the same from every thread
            const Share own = of(rows);
            for (long row = own.first; row < own.last; row++) quantised.set(x, row, map.inputs);
            wait();
        }
        const long panels = padded(map.outputs, PANEL) / PANEL;
        const Share own = of(panels);
        float part[TILE * PANEL];
        for (long number = own.first; number < own.last; number++) {
            const long first = number * PANEL, width = std::min(PANEL, map.outputs - first);
            const long tall = map.bytes ? 4 : TILE;
            for (long row = 0; row < rows; row += tall) {
                const long count = std::min(tall, rows - row);
                float* to = y + row * map.outputs + first;
                const bool direct = width == PANEL && !add && !times;  // either may be y itself
                multiply(map, x, row, count, number, direct ? to : part, direct ? map.outputs : PANEL);
                for (long r = 0; r < count; r++) {
                    float *line = to + r * map.outputs, *found = direct ? line : part + r * PANEL;
                    if (activation != NONE) activate(found, width, activation);
                    if (add) {
                        const float* more = add + (row + r) * map.outputs + first;
                        for (long i = 0; i < width; i++) line[i] = more[i] + found[i];
                    } else if (times) {
                        const float* factor = times + (row + r) * map.outputs + first;
                        for (long i = 0; i < width; i++) line[i] = factor[i] * found[i];
                    } else if (!direct) {
                        memcpy(line, found, width * sizeof(float));
                    }
                }
            }
        }
        wait();
    }

    void multiply(const Map& map, const float* x, long row, long count, long number, float* y, long stride) const {
        const float* bias = map.bias ? map.bias + number * PANEL : nullptr;
        if (!map.bytes) {
            const float* panel = (const float*)map.packed + number * PANEL * map.inputs;
            const float* from = x + row * map.inputs;
            switch (count) {
                case 1: return tile<1>(from, map.inputs, panel, bias, y, stride);
                case 2: return tile<2>(from, map.inputs, panel, bias, y, stride);
                case 3: return tile<3>(from, map.inputs, panel, bias, y, stride);
                case 4: return tile<4>(from, map.inputs, panel, bias, y, stride);
                case 5: return tile<5>(from, map.inputs, panel, bias, y, stride);
                default: return tile<6>(from, map.inputs, panel, bias, y, stride);
            }
        }
#if HAS_BYTES
        const long depth = quantised.depth;
        const uint8_t* panel = (const uint8_t*)map.packed + number * PANEL * depth;
        const int8_t* from = quantised.numbers.data() + row * depth;
        const float *scales = quantised.scales.data() + row, *scale = map.scale + number * PANEL;
        const int32_t* sums = quantised.sums.data() + row;
        switch (count) {
            case 1: return tile<1>(from, depth, scales, sums, panel, scale, bias, y, stride);
            case 2: return tile<2>(from, depth, scales, sums, panel, scale, bias, y, stride);
            case 3: return tile<3>(from, depth, scales, sums, panel, scale, bias, y, stride);
            default: return tile<4>(from, depth, scales, sums, panel, scale, bias, y, stride);
        }
#endif
    }

    void normalise(const Norm& norm, const float* x, float* y, long rows, long width) const {
        const Share own = of(rows);
        for (long row = own.first; row < own.last; row++) {
            const float* from = x + row * width;
            float* to = y + row * width;
            float mean = 0.0f, square = 0.0f;
            if (norm.centred) {
#pragma omp simd reduction(+ : mean)
                for (long i = 0; i < width; i++) mean += from[i];
                mean /= width;
            }
#pragma omp simd reduction(+ : square)
            for (long i = 0; i < width; i++) square += (from[i] - mean) * (from[i] - mean);
            const float factor = 1.0f / sqrtf(square / width + (float)norm.epsilon);
            for (long i = 0; i < width; i++) to[i] = (from[i] - mean) * factor * norm.weight[i];
            if (norm.bias)
                for (long i = 0; i < width; i++) to[i] += norm.bias[i];
        }
        wait();
    }
};

// What one query sees: context = sum_s softmax_s(scale q k_s) v_s over the cells that it may see. Usual widths of a
// head are compiled in; 0 is any other.
template <long WIDTH>
static void look(const float* query, const float* keys, const float* values, long stride, long cells,
                 const uint8_t* sees, float scale, long any, std::vector<float>& weights, std::vector<int>& seen,
                 float* context) {
    const long width = WIDTH ? WIDTH : any;
    long count = 0;
    float largest = -INFINITY, total = 0.0f;
    for (long cell = 0; cell < cells; cell++) {
        if (sees && !sees[cell]) continue;
        const float* key = keys + cell * stride;
        float score = 0.0f;
#pragma omp simd reduction(+ : score)
        for (long i = 0; i < width; i++) score += query[i] * key[i];
        score *= scale;
        largest = score > largest ? score : largest;
        weights[count] = score;
        seen[count++] = (int)cell;
    }
    for (long i = 0; i < count; i++) weights[i] = exponential(weights[i] - largest);
#pragma omp simd reduction(+ : total)
    for (long i = 0; i < count; i++) total += weights[i];
    for (long i = 0; i < width; i++) context[i] = 0.0f;
    for (long c = 0; c < count; c++) {
        const float weight = weights[c] / total;
        const float* value = values + seen[c] * stride;
        for (long i = 0; i < width; i++) context[i] += weight * value[i];
    }
}

static decltype(look<0>)* look_of(long width) {
    return width == 32 ? look<32> : width == 64 ? look<64> : width == 128 ? look<128> : look<0>;
}

// Which rows and heads of a step are a thread's: pairs, so that one row is shared out, too.
template <typename Each>
static void each_head(const Team& team, const Step& step, Each each) {
    const Share own = team.of(step.rows * step.heads);
    for (long pair = own.first; pair < own.last; pair++) each(pair / step.heads, pair % step.heads);
    team.wait();
}

// Turn each pair of columns of a head by the angle of its row.
static void turn(const Step& step, long row, float* head) {
    const long half = step.head_width / 2, next = step.interleaved ? 1 : half, apart = step.interleaved ? 2 : 1;
    const float *sine = step.sine + row * half, *cosine = step.cosine + row * half;
    for (long i = 0; i < half; i++) {
        float &left = head[i * apart], &right = head[i * apart + next];
        const float turned = left * cosine[i] - right * sine[i];
        right = right * cosine[i] + left * sine[i];
        left = turned;
    }
}

struct Room {
    std::vector<float> hidden, projected, context;
    Quantised quantised;
};

static void attend_self(const Team& team, const Step& step, long layer, Room& room, std::vector<float>& weights,
                        std::vector<int>& seen) {
    const long width = step.head_width, all = (step.heads + 2 * step.groups) * width;
    const long beam = step.rows / step.sentences;
    float* projected = room.projected.data();
    auto cells = [&](float* kept, long row, long group) {
        return kept + ((row / beam * step.layers + layer) * step.groups + group) * step.capacity * width;
    };
    const Share own = team.of(step.rows * step.groups);
    for (long pair = own.first; pair < own.last; pair++) {
        const long row = pair / step.groups, group = pair % step.groups;
        float* key = projected + row * all + (step.heads + group) * width;
        if (step.sine) turn(step, row, key);
        const long at = step.cell[row] * width;
        memcpy(cells(step.keys, row, group) + at, key, width * sizeof(float));
        memcpy(cells(step.values, row, group) + at, key + step.groups * width, width * sizeof(float));
    }
    team.wait();
    const auto see = look_of(width);
    each_head(team, step, [&](long row, long head) {
        const long group = head / (step.heads / step.groups);
        float* query = projected + row * all + head * width;
        if (step.sine) turn(step, row, query);
        see(query, cells(step.keys, row, group), cells(step.values, row, group), width,
             step.filled, step.sees ? step.sees + row * step.filled : nullptr, (float)step.scale, width, weights, seen,
             room.context.data() + (row * step.heads + head) * width);
    });
}

static void attend_memory(const Team& team, const Step& step, long layer, Room& room, std::vector<float>& weights,
                          std::vector<int>& seen) {
    const long width = step.head_width, beam = step.rows / step.sentences;
    const auto see = look_of(width);
    each_head(team, step, [&](long row, long head) {
        const long sentence = row / beam, from = sentence * step.sentence_stride + head * step.head_stride;
        see(room.projected.data() + (row * step.heads + head) * width, step.memory_keys[layer] + from,
             step.memory_values[layer] + from, step.cell_stride, step.cells,
             step.real ? step.real + sentence * step.cells : nullptr, (float)step.cross_scale, width, weights, seen,
             room.context.data() + (row * step.heads + head) * width);
    });
}

// One residual: x <- x + f(norm(x)), or x <- norm(x + f(x)); f reads its input and adds to x.
template <typename Sublayer>
static void around(const Team& team, const Step& step, const Norm& norm, bool pre, Room& room, Sublayer sublayer) {
    float* x = step.x;
    if (pre) team.normalise(norm, x, room.hidden.data(), step.rows, step.width);
    sublayer(pre ? room.hidden.data() : x, x);
    if (!pre) team.normalise(norm, x, x, step.rows, step.width);
}

extern "C" {

void pack_floats(const float* table, float* packed, int64_t outputs, int64_t inputs) {
    for (long first = 0; first < outputs; first += PANEL)
        for (long i = 0; i < inputs; i++)
            for (long c = 0; c < PANEL; c++)
                packed[first * inputs + i * PANEL + c] = first + c < outputs ? table[(first + c) * inputs + i] : 0.0f;
}

void pack_bytes(const int8_t* table, uint8_t* packed, int64_t outputs, int64_t inputs) {
    const long depth = padded(inputs, 4);
    for (long first = 0; first < outputs; first += PANEL)
        for (long i = 0; i < depth; i++)
            for (long c = 0; c < PANEL; c++) {
                const bool inside = first + c < outputs && i < inputs;
                const int number = inside ? table[(first + c) * inputs + i] : 0;
                packed[first * depth + i / 4 * 4 * PANEL + 4 * c + i % 4] = (uint8_t)(number + 128);
            }
}

void apply(const Map* map, const float* x, float* y, int64_t rows) {
    thread_local Quantised quantised;
    Quantised& shared = quantised;
    if (map->bytes) shared.make_room(rows, map->inputs);
#pragma omp parallel if (rows * map->outputs * map->inputs > (1 << 18))
    Team{omp_get_thread_num(), omp_get_num_threads(), shared}.apply(*map, x, y, rows);
}

// x <- x - log sum exp x, row by row.
void log_softmax(float* x, int64_t rows, int64_t width) {
#pragma omp parallel for if (rows * width > (1 << 16))
    for (long row = 0; row < rows; row++) {
        float* line = x + row * width;
        float largest = -INFINITY, total = 0.0f;
#pragma omp simd reduction(max : largest)
        for (long i = 0; i < width; i++) largest = line[i] > largest ? line[i] : largest;
#pragma omp simd reduction(+ : total)
        for (long i = 0; i < width; i++) total += exponential(line[i] - largest);
        const float log_sum = largest + logf(total);
        for (long i = 0; i < width; i++) line[i] -= log_sum;
    }
}

// The `count` largest of each row, largest first and of equals the first; NaN counts as larger than all.
void largest(const float* x, int64_t rows, int64_t width, int64_t count, float* values, int64_t* places) {
    const auto before = [](float a, float b) { return a > b || (a != a && b == b); };
#pragma omp parallel for if (rows * width > (1 << 16))
    for (long row = 0; row < rows; row++) {
        const float* line = x + row * width;
        float* best = values + row * count;
        int64_t* place = places + row * count;
        long found = 0;
        const auto offer = [&](long i) {
            if (found == count && !before(line[i], best[count - 1])) return;
            long at = found < count ? found++ : count - 1;
            for (; at > 0 && before(line[i], best[at - 1]); at--) best[at] = best[at - 1], place[at] = place[at - 1];
            best[at] = line[i], place[at] = i;
        };
        long i = 0;
        for (; i < std::min<long>(count, width); i++) offer(i);
        for (; i + PANEL <= width; i += PANEL) {  // few panels hold one of the largest
            const float least = best[count - 1];
            int any = 0;
#pragma omp simd reduction(| : any)
            for (long c = 0; c < PANEL; c++) any |= !(line[i + c] <= least);
            if (any)
                for (long c = 0; c < PANEL; c++) offer(i + c);
        }
        for (; i < width; i++) offer(i);
    }
}

void decoder_step(const Block* blocks, const Step* given) {
    thread_local Room room_of_thread;
    Room& room = room_of_thread;
    const Step step = *given;
    const long rows = step.rows, all = (step.heads + 2 * step.groups) * step.head_width;
    const long widest = std::max(std::max(step.hidden, all), step.width);
    room.hidden.resize(std::max<size_t>(room.hidden.size(), rows * step.width));
    room.projected.resize(std::max<size_t>(room.projected.size(), rows * widest));
    room.context.resize(std::max<size_t>(room.context.size(), rows * step.heads * step.head_width));
    room.quantised.make_room(rows, widest);
#pragma omp parallel
    {
        const Team team{omp_get_thread_num(), omp_get_num_threads(), room.quantised};
        std::vector<float> weights(std::max(step.filled, step.cells));
        std::vector<int> seen(weights.size());
        float *projected = room.projected.data(), *context = room.context.data();
        for (long layer = 0; layer < step.layers; layer++) {
            const Block& block = blocks[layer];
            around(team, step, block.around_attention, block.pre, room, [&](const float* from, float* x) {
                team.apply(*block.project, from, projected, rows);
                attend_self(team, step, layer, room, weights, seen);
                team.apply(*block.output, context, x, rows, NONE, x);
            });
            if (block.ask)
                around(team, step, block.around_cross, block.pre, room, [&](const float* from, float* x) {
                    team.apply(*block.ask, from, projected, rows);
                    attend_memory(team, step, layer, room, weights, seen);
                    team.apply(*block.answer, context, x, rows, NONE, x);
                });
            around(team, step, block.around_feed_forward, block.pre, room, [&](const float* from, float* x) {
                if (block.gate) {
                    team.apply(*block.gate, from, projected, rows, block.activation);
                    team.apply(*block.expand, from, projected, rows, NONE, nullptr, projected);
                } else {
                    team.apply(*block.expand, from, projected, rows, block.activation);
                }
                team.apply(*block.contract, projected, x, rows, NONE, x);
            });
        }
        if (step.last) team.normalise(*step.last, step.x, step.x, rows, step.width);
    }
}
}
