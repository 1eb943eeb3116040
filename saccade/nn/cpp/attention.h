// Attention of a step: over the cells of what was written before, and over an encoder's memory.
#pragma once

#include "model.h"

// q k_s of four cells at once; `which` says where they lie, or none: one after the other.
template <long WIDTH>
static void scores_of(const float* query, const float* keys, long stride, const int* which, long count, long width,
                      float* scores) {
    if (WIDTH == 0 || WIDTH % LANES) {
        for (long c = 0; c < count; c++) {
            const float* key = keys + (which ? which[c] : c) * stride;
            float score = 0.0f;
#pragma omp simd reduction(+ : score)
            for (long i = 0; i < width; i++) score += query[i] * key[i];
            scores[c] = score;
        }
        return;
    }
    for (long first = 0; first < count; first += 4) {
        Floats sum[4];
#pragma GCC unroll 4
        for (long c = 0; c < 4; c++) {
            const long cell = std::min(first + c, count - 1);
            const float* key = keys + (which ? which[cell] : cell) * stride;
            sum[c] = Floats{};
            for (long i = 0; i < WIDTH; i += LANES)
                sum[c] = multiply_add(*(const Anywhere*)(query + i), *(const Anywhere*)(key + i), sum[c]);
        }
        four_sums(sum[0], sum[1], sum[2], sum[3], scores + first);
    }
}

// e^(score - the largest) of so many scaled scores, in their place, 0 for those of -inf and for what fills up whole vectors
// after them; and one over their sum, 0 where all are.
static float take_exponentials(float* scores, float scale, long count, long across) {
    Floats highest = all_lanes(-INFINITY), sums = {};
    for (long c = 0; c < across; c += LANES) {
        const Floats scaled = *(const Anywhere*)(scores + c) * all_lanes(scale);
        const Floats x = first_lanes(count - c) ? scaled : all_lanes(-INFINITY);
        *(Anywhere*)(scores + c) = x;
        highest = x > highest ? x : highest;
    }
    const float largest = largest_of(highest);
    for (long c = 0; c < across; c += LANES) {
        for (long cell = c; cell < c + LANES; cell++)
            scores[cell] = scores[cell] == -INFINITY ? 0.0f : exponential(scores[cell] - largest);
        sums += *(const Anywhere*)(scores + c);
    }
    const float total = sum_of(sums);
    return total == 0.0f ? 0.0f : 1.0f / total;
}

// context = factor sum_s w_s v_s of the same cells.
template <long WIDTH>
static void mix(const float* weights, float factor, const float* values, long stride, const int* which, long count,
                long width, float* context) {
    if (WIDTH == 0 || WIDTH % LANES) {
        for (long i = 0; i < width; i++) context[i] = 0.0f;
        for (long c = 0; c < count; c++) {
            const float* value = values + (which ? which[c] : c) * stride;
            for (long i = 0; i < width; i++) context[i] += weights[c] * factor * value[i];
        }
        return;
    }
    constexpr long VECTORS = std::max(WIDTH / LANES, 1L);
    Floats sum[VECTORS] = {};
    for (long c = 0; c < count; c++) {
        const float* value = values + (which ? which[c] : c) * stride;
        const Floats weight = all_lanes(weights[c]);
        for (long i = 0; i < VECTORS; i++) sum[i] = multiply_add(weight, *(const Anywhere*)(value + i * LANES), sum[i]);
    }
    for (long i = 0; i < VECTORS; i++) *(Anywhere*)(context + i * LANES) = sum[i] * all_lanes(factor);
}

// What some heads of a row see: context = sum_s softmax_s(scale q k_s) v_s over these cells, which lie `between` each other
// from head to head. Usual widths of a head are compiled in; 0 is any other. `weights` has room for whole vectors of each.
constexpr long HEADS = 4;  // at most: each step of one has to wait for the one before, and goes on with another meanwhile
template <long WIDTH>
static void look(long heads, const float* queries, const float* keys, const float* values, long between, long stride,
                 const int* which, long count, float scale, long any, float* weights, float* context) {
    const long width = WIDTH ? WIDTH : any, across = padded(count, LANES);
    float factor[HEADS];
    for (long head = 0; head < heads; head++)
        scores_of<WIDTH>(queries + head * width, keys + head * between, stride, which, count, width, weights + head * across);
    for (long head = 0; head < heads; head++)
        factor[head] = take_exponentials(weights + head * across, scale, count, across);
    for (long head = 0; head < heads; head++)
        mix<WIDTH>(weights + head * across, factor[head], values + head * between, stride, which, count, width,
                   context + head * width);
}

static decltype(look<0>)* look_of(long width) {
    return width == 32 ? look<32> : width == 64 ? look<64> : width == 128 ? look<128> : look<0>;
}

// Which rows and heads of a step are a thread's: pairs, so that one row is shared out, too. So many heads of a row, at most,
// are looked at together.
template <typename Each>
static void each_heads(const Team& team, const Step& step, long most, Each each) {
    const Share own = team.of(step.rows * step.heads);
    for (long pair = own.first; pair < own.last;) {
        const long head = pair % step.heads, count = std::min({most, step.heads - head, own.last - pair});
        each(pair / step.heads, head, count);
        pair += count;
    }
    team.wait();
}

// Which cells a row may look at, as numbers: the same for all layers and heads of a step.
static void list_seen(const uint8_t* sees, long cells, const Seen& seen, long row) {
    int *cell = seen.of(row), count = 0;
    for (long c = 0; c < cells; c++) {
        cell[count] = (int)c;
        count += sees[row * cells + c] != 0;
    }
    seen.counts[row] = count;
}

// Turn each pair of columns of a head by the angle of its row.
static void turn(const Step& step, long row, float* head) {
    const long half = step.head_width / 2, next = step.interleaved ? 1 : half, apart = step.interleaved ? 2 : 1;
    const long from = step.origin(row) * half;
    const float *sine = step.sine + from, *cosine = step.cosine + from;
    for (long i = 0; i < half; i++) {
        float &left = head[i * apart], &right = head[i * apart + next];
        const float turned = left * cosine[i] - right * sine[i];
        right = right * cosine[i] + left * sine[i];
        left = turned;
    }
}

// Softmax of the scaled scores over the cells that may be seen, 0 elsewhere, in place: over whole vectors, so that no sum
// depends on how many cells there are beyond those that are seen.
static void weigh(float* scores, float scale, const uint8_t* sees, long cells, long across) {
    if (sees)
        for (long cell = 0; cell < cells; cell++) scores[cell] = sees[cell] ? scores[cell] : -INFINITY;
    const float factor = take_exponentials(scores, scale, cells, across);
    for (long c = 0; c < across; c += LANES) *(Anywhere*)(scores + c) *= all_lanes(factor);
}

// Whether every cell of a sentence is that of one of its rows, as in an encoder.
static bool looks_at_all(const Step& step) { return step.rows == step.sentences * step.filled; }

// A head's rows and cells at once, where all are looked at.
static void attend_whole(const Team& team, const Step& step, long layer, Room& room) {
    const long width = step.head_width, all = (step.heads + 2 * step.groups) * width, cells = step.filled;
    const long beam = step.rows / step.sentences, across = padded(cells, LANES), wide = padded(width, LANES);
    const bool whole = wide == width;  // otherwise, what is read and written in whole vectors has room of its own
    std::vector<float> keys(width * across), scores(beam * across);
    std::vector<float> values(whole ? 0 : cells * wide), seen(whole ? 0 : beam * wide);
    const Share own = team.of(step.sentences * step.groups);
    for (long pair = own.first; pair < own.last; pair++) {
        const long sentence = pair / step.groups, group = pair % step.groups, first = sentence * beam;
        const long kept = ((step.place_of(sentence) * step.layers + layer) * step.groups + group) * step.capacity * width;
        turn_over(step.keys + kept, width, cells, width, keys.data(), across);
        if (!whole)
            for (long cell = 0; cell < cells; cell++)
                memcpy(values.data() + cell * wide, step.values + kept + cell * width, width * sizeof(float));
        const long per_group = step.heads / step.groups, between = step.heads * width;
        for (long head = group * per_group; head < (group + 1) * per_group; head++) {
            float* queries = room.projected.data() + first * all + head * width;
            float* context = room.context.data() + (first * step.heads + head) * width;
            for (long r = 0; r < beam && step.sine; r++) turn(step, first + r, queries + r * all);
            multiply(beam, queries, all, 1, width, keys.data(), across, scores.data(), across, across);
            for (long r = 0; r < beam; r++) {
                const uint8_t* sees = step.sees ? step.sees + (first + r) * cells : nullptr;
                weigh(scores.data() + r * across, (float)step.scale, sees, cells, across);
            }
            multiply(beam, scores.data(), across, 1, cells, whole ? step.values + kept : values.data(), wide,
                     whole ? context : seen.data(), whole ? between : wide, wide);
            for (long r = 0; r < beam && !whole; r++)
                memcpy(context + r * between, seen.data() + r * wide, width * sizeof(float));
        }
    }
    team.wait();
}

// `seen` lists what each row looks at, or is none: all up to its own.
static void attend_self(const Team& team, const Step& step, long layer, const Seen& seen, Room& room,
                        std::vector<float>& weights) {
    const long width = step.head_width, all = (step.heads + 2 * step.groups) * width;
    const long beam = step.rows / step.sentences;
    float* projected = room.projected.data();
    auto cells = [&](float* kept, long row, long group) {
        return kept + ((step.place_of(row / beam) * step.layers + layer) * step.groups + group) * step.capacity * width;
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
    const bool whole = looks_at_all(step);
    if (whole || step.heads != step.groups) team.wait();  // otherwise what is new to a head, its own thread has written
    if (whole) return attend_whole(team, step, layer, room);
    const auto see = look_of(width);
    each_heads(team, step, step.heads == step.groups ? HEADS : 1, [&](long row, long head, long count) {
        const long group = head / (step.heads / step.groups);
        float* queries = projected + row * all + head * width;
        for (long each = 0; each < count && step.sine; each++) turn(step, row, queries + each * width);
        see(count, queries, cells(step.keys, row, group), cells(step.values, row, group), step.capacity * width, width,
            seen ? seen.of(row) : nullptr, seen ? seen.counts[row] : step.cell[row] + 1, (float)step.scale, width,
            weights.data(), room.context.data() + (row * step.heads + head) * width);
    });
}

// `real` lists what is there of each memory, or is none: all.
static void attend_memory(const Team& team, const Step& step, long layer, const Seen& real, Room& room,
                          std::vector<float>& weights) {
    const long width = step.head_width, beam = step.rows / step.sentences;
    const auto see = look_of(width);
    each_heads(team, step, HEADS, [&](long row, long head, long count) {
        const long place = step.place_of(row / beam);
        const long from = place * step.sentence_stride + (layer * step.heads + head) * step.head_stride;
        see(count, room.projected.data() + (row * step.heads + head) * width, step.memory_keys + from,
            step.memory_values + from, step.head_stride, step.cell_stride, real ? real.of(place) : nullptr,
            real ? real.counts[place] : step.cells, (float)step.cross_scale, width, weights.data(),
            room.context.data() + (row * step.heads + head) * width);
    });
}
