// What a Transformer's step is given, as native.py fills it in, and the room it works in.
#pragma once

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
    float* x;               // (rows, width), in and out, or none: tokens are given, and only log_p is asked for
    float *keys, *values;   // (sentences, layers groups, capacity, head_width)
    int64_t capacity, filled;
    const float *sine, *cosine;  // (rows, head_width / 2) by which queries and keys are turned, or none
    int64_t interleaved;    // whether columns 2i and 2i + 1 are turned together; otherwise i and i + head_width / 2
    const int64_t* cell;    // (rows,) into which cell of its sentence each row writes
    const uint8_t* sees;    // (rows, filled), or none: all up to its own, in an encoder all
    const float *memory_keys, *memory_values;  // (sentences, layers heads, cells, head_width), with these strides
    int64_t cells, sentence_stride, head_stride, cell_stride;
    const uint8_t* real;    // (sentences, cells), or none: all
    const Norm* last;       // or none
    const Map* predict;     // or none: what of the last x makes ...
    float* log_p;           // ... log-probabilities (rows, words to predict)
    const int64_t* place;   // of each sentence among those of keys, values, memory and angles, or none: in their order
    int64_t first;          // of all sentences, the first of this step

    long place_of(long sentence) const { return place ? place[first + sentence] : first + sentence; }

    // Which row of all it was at first.
    long origin(long row) const {
        const long beam = rows / sentences;
        return place_of(row / beam) * beam + row % beam;
    }
};

// Numbers of the cells that each row may look at.
struct Seen {
    int *cells = nullptr, *counts = nullptr;
    long most = 0;  // of a row

    int* of(long row) const { return cells + row * most; }
    Seen from(long row) const { return {of(row), counts + row, most}; }
    explicit operator bool() const { return cells; }
};

// Where such lists lie.
struct Lists {
    std::vector<int> cells, counts;

    Seen of(long rows, long most) {
        cells.resize(std::max<size_t>(cells.size(), rows * most));
        counts.resize(std::max<size_t>(counts.size(), rows));
        return {cells.data(), counts.data(), most};
    }
};

struct Room {
    std::vector<float> x, hidden, projected, context;
    Lists own[2], real;  // of a step and of the one after it
    Quantised quantised;
};
