// Attention of a step: over the cells of what was written before, and over an encoder's memory.
#pragma once

#include "model.h"

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
    if (sees)
        for (long cell = 0; cell < cells; cell++) scores[cell] = sees[cell] ? scores[cell] : -INFINITY;
    for (long cell = cells; cell < across; cell++) scores[cell] = -INFINITY;
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
            step.sees ? step.filled : step.cell[row] + 1, step.sees ? step.sees + row * step.filled : nullptr,
            (float)step.scale, width, weights, seen, room.context.data() + (row * step.heads + head) * width);
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
