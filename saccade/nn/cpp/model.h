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
};

// Numbers of the cells that each row may look at.
struct Seen {
    std::vector<int> cells, counts;
    long most;  // of a row

    void make_room(long rows, long cells_of_row) {
        most = cells_of_row;
        cells.resize(std::max<size_t>(cells.size(), rows * most));
        counts.resize(std::max<size_t>(counts.size(), rows));
    }

    int* of(long row) { return cells.data() + row * most; }
    const int* of(long row) const { return cells.data() + row * most; }
};

struct Room {
    std::vector<float> x, hidden, projected, context;
    Seen own[2], real;  // of a step and of the one after it
    Quantised quantised;
};
