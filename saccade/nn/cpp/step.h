// One step of a Transformer: all its blocks, for one new position of each row. An encoder takes a single one, in which
// the positions of a sentence are its rows.
#pragma once

#include <omp.h>

#include "products.h"

struct Norm {
    const float *weight, *bias;
    double epsilon;
    int64_t centred;  // layer norm; otherwise by the root of the mean square
};

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
    const int64_t* tokens;  // (rows,), or none: x is given
    const float* table;     // (words, width), of which x begins as the token's row ...
    double table_scale;     // ... times this ...
    int64_t words;
    const float* places;    // ... plus the row of its place, or none
    const int64_t* at;      // (rows,)
    float* x;               // (rows, width), in and out
    float *keys, *values;   // (sentences, layers groups, capacity, head_width)
    int64_t capacity, filled;
    const float *sine, *cosine;  // (rows, head_width / 2) by which queries and keys are turned, or none
    int64_t interleaved;    // whether columns 2i and 2i + 1 are turned together; otherwise i and i + head_width / 2
    const int64_t* cell;    // (rows,) into which cell of its sentence each row writes
    const uint8_t* sees;    // (rows, filled), or none: all
    const float *memory_keys, *memory_values;  // (sentences, layers heads, cells, head_width), with these strides
    int64_t cells, sentence_stride, head_stride, cell_stride;
    const uint8_t* real;    // (sentences, cells), or none: all
    const Norm* last;       // or none
};

struct Room {
    std::vector<float> hidden, projected, context;
    Quantised quantised;
};

static void normalise(const Team& team, const Norm& norm, const float* x, float* y, long rows, long width) {
    const Share own = team.of(rows);
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
    team.wait();
}

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

// Softmax of the scores over the cells that may be seen, 0 elsewhere, in place: over whole panels, so that no sum
// depends on how many cells there are beyond those that are seen.
static void weigh(float* scores, const uint8_t* sees, long cells, long across) {
    float largest = -INFINITY, total = 0.0f;
    for (long cell = 0; cell < across; cell++)
        if (cell >= cells || (sees && !sees[cell])) scores[cell] = -INFINITY;
#pragma omp simd reduction(max : largest)
    for (long cell = 0; cell < across; cell++) largest = scores[cell] > largest ? scores[cell] : largest;
    for (long cell = 0; cell < across; cell++)
        scores[cell] = scores[cell] == -INFINITY ? 0.0f : exponential(scores[cell] - largest);
#pragma omp simd reduction(+ : total)
    for (long cell = 0; cell < across; cell++) total += scores[cell];
    const float factor = total == 0.0f ? 0.0f : 1.0f / total;
    for (long cell = 0; cell < across; cell++) scores[cell] *= factor;
}

// Where every cell of a sentence is that of one of its rows, as in an encoder: keys and values of a head as panels, rows
// in tiles.
static void attend_whole(const Team& team, const Step& step, long layer, Room& room) {
    const long width = step.head_width, all = (step.heads + 2 * step.groups) * width, cells = step.filled;
    const long beam = step.rows / step.sentences, across = padded(cells, PANEL), wide = padded(width, PANEL);
    std::vector<float> keys(across * width), values(wide * cells);
    std::vector<float> queries(TILE * width), scores(TILE * across), weights(TILE * cells), seen(TILE * PANEL);
    const Share own = team.of(step.sentences * step.groups);
    for (long pair = own.first; pair < own.last; pair++) {
        const long sentence = pair / step.groups, group = pair % step.groups;
        const long kept = ((sentence * step.layers + layer) * step.groups + group) * step.capacity * width;
        for (long cell = 0; cell < cells; cell++)
            for (long i = 0; i < width; i++) {
                const long at = kept + cell * width + i;
                keys[(cell / PANEL * width + i) * PANEL + cell % PANEL] = step.keys[at];
                values[(i / PANEL * cells + cell) * PANEL + i % PANEL] = step.values[at];
            }
        const long per_group = step.heads / step.groups;
        for (long head = group * per_group; head < (group + 1) * per_group; head++)
            for (long first = sentence * beam; first < (sentence + 1) * beam; first += TILE) {
                const long count = std::min(TILE, (sentence + 1) * beam - first);
                for (long r = 0; r < count; r++) {
                    float* query = room.projected.data() + (first + r) * all + head * width;
                    if (step.sine) turn(step, first + r, query);
                    for (long i = 0; i < width; i++) queries[r * width + i] = query[i] * (float)step.scale;
                }
                for (long cell = 0; cell < across; cell += PANEL)
                    tile(count, queries.data(), width, keys.data() + cell * width, nullptr, scores.data() + cell, across);
                for (long r = 0; r < count; r++) {
                    float* row = scores.data() + r * across;
                    weigh(row, step.sees ? step.sees + (first + r) * cells : nullptr, cells, across);
                    memcpy(weights.data() + r * cells, row, cells * sizeof(float));
                }
                for (long i = 0; i < width; i += PANEL) {
                    tile(count, weights.data(), cells, values.data() + i * cells, nullptr, seen.data(), PANEL);
                    for (long r = 0; r < count; r++)
                        memcpy(room.context.data() + ((first + r) * step.heads + head) * width + i, seen.data() + r * PANEL,
                               std::min(PANEL, width - i) * sizeof(float));
                }
            }
    }
    team.wait();
}

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
    if (beam == step.filled) return attend_whole(team, step, layer, room);
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
        const long sentence = row / beam;
        const long from = sentence * step.sentence_stride + (layer * step.heads + head) * step.head_stride;
        see(room.projected.data() + (row * step.heads + head) * width, step.memory_keys + from, step.memory_values + from,
            step.cell_stride, step.cells, step.real ? step.real + sentence * step.cells : nullptr,
            (float)step.cross_scale, width, weights, seen, room.context.data() + (row * step.heads + head) * width);
    });
}

// One residual: x <- x + f(norm(x)), or x <- norm(x + f(x)); f reads its input and adds to x.
template <typename Sublayer>
static void around(const Team& team, const Step& step, const Norm& norm, bool pre, Room& room, Sublayer sublayer) {
    float* x = step.x;
    if (pre) normalise(team, norm, x, room.hidden.data(), step.rows, step.width);
    sublayer(pre ? room.hidden.data() : x, x);
    if (!pre) normalise(team, norm, x, x, step.rows, step.width);
}

static void embed(const Team& team, const Step& step) {
    const Share own = team.of(step.rows);
    for (long row = own.first; row < own.last; row++) {
        const float* vector = step.table + step.tokens[row] * step.width;
        const float scale = (float)step.table_scale;
        float* x = step.x + row * step.width;
        for (long i = 0; i < step.width; i++) x[i] = vector[i] * scale;
        if (!step.places) continue;
        const float* place = step.places + step.at[row] * step.width;
        for (long i = 0; i < step.width; i++) x[i] += place[i];
    }
    team.wait();
}

// Whether all tokens have a row in the table: nothing is done where one has not.
static bool run(const Block* blocks, const Step* given, int threads) {
    for (long row = 0; given->tokens && row < given->rows; row++)
        if (given->tokens[row] < 0 || given->tokens[row] >= given->words) return false;
    if (!given->rows) return true;
    thread_local Room room_of_thread;
    Room& room = room_of_thread;
    const Step step = *given;
    const long rows = step.rows, all = (step.heads + 2 * step.groups) * step.head_width;
    const long widest = std::max<long>({step.hidden, all, step.width});
    room.hidden.resize(std::max<size_t>(room.hidden.size(), rows * step.width));
    room.projected.resize(std::max<size_t>(room.projected.size(), rows * widest));
    room.context.resize(std::max<size_t>(room.context.size(), rows * step.heads * step.head_width));
    room.quantised.make_room(rows, widest);
#pragma omp parallel num_threads(threads)
    {
        const Team team{omp_get_thread_num(), omp_get_num_threads(), room.quantised};
        std::vector<float> weights(std::max<long>(step.filled, step.cells));
        std::vector<int> seen(weights.size());
        float *projected = room.projected.data(), *context = room.context.data();
        if (step.tokens) embed(team, step);
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
        if (step.last) normalise(team, *step.last, step.x, step.x, rows, step.width);
    }
    return true;
}
