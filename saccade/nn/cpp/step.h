// One step of a Transformer: all its blocks, for one new position of each row. An encoder takes a single one, in which
// the positions of a sentence are its rows.
#pragma once

#include <omp.h>

#include "attention.h"

static void normalise(const Team& team, const Norm& norm, const float* x, float* y, long rows, long width) {
    const Share own = team.of_rows(rows);
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
        if (norm.bias)
            for (long i = 0; i < width; i++) to[i] = (from[i] - mean) * factor * norm.weight[i] + norm.bias[i];
        else
            for (long i = 0; i < width; i++) to[i] = (from[i] - mean) * factor * norm.weight[i];
    }
    team.wait_for_rows();
}

// One residual of a state that lies in `now`: x + f(norm(x)), which lies in x afterwards, or norm(x + f(x)), in `hidden`. f is
// given what it reads and what it adds to, and writes to x. All blocks have the same order.
template <typename Sublayer>
static const float* around(const Team& team, const Step& step, const Norm& norm, bool pre, const float* now, float* hidden,
                           Sublayer sublayer) {
    if (!pre) sublayer(now, now);
    normalise(team, norm, step.x, hidden, step.rows, step.width);
    if (pre) sublayer(hidden, step.x);
    return pre ? step.x : hidden;
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

// log sum exp x
static float log_sum_of(const float* x, long width) {
    float largest = -INFINITY, total = 0.0f;
#pragma omp simd reduction(max : largest)
    for (long i = 0; i < width; i++) largest = x[i] > largest ? x[i] : largest;
#pragma omp simd reduction(+ : total)
    for (long i = 0; i < width; i++) total += exponential(x[i] - largest);
    return largest + logf(total);
}

// x - log sum exp x, in place of x.
static void log_softmax(const Team& team, float* x, long rows, long width) {
    const Share own = team.of(rows);
    for (long row = own.first; row < own.last; row++) {
        float* line = x + row * width;
        const float log_sum = log_sum_of(line, width);
        for (long i = 0; i < width; i++) line[i] -= log_sum;
    }
}

// What lies between the parts of a step, kept from one to the next.
static thread_local Room room_of_thread;

// `filled`: cells of a sentence when all is done.
static void make_room(Room& room, Step& step, long filled) {
    const long rows = step.rows, all = (step.heads + 2 * step.groups) * step.head_width;
    const long widest = std::max<long>({step.hidden, all, step.width});
    room.x.resize(std::max<size_t>(room.x.size(), step.x ? 0 : rows * step.width));
    if (!step.x) step.x = room.x.data();
    room.hidden.resize(std::max<size_t>(room.hidden.size(), rows * step.width));
    room.projected.resize(std::max<size_t>(room.projected.size(), rows * widest));
    room.context.resize(std::max<size_t>(room.context.size(), rows * step.heads * step.head_width));
    room.quantised.make_room(rows, widest);
    if (step.sees) room.own[0].make_room(rows, filled);
    if (step.sees && filled > step.filled) room.own[1].make_room(rows, filled);
    if (step.real) room.real.make_room(step.sentences, step.cells);
}

// A thread's part of the work: which step it is, or of which sentences, and with whom it is shared. `room` is the team's,
// and `own` where each thread has the rows that it takes care of itself.
struct Part {
    Step step;
    long first_sentence;
    Room &room, &own;
    Team team;
    int threads;  // of all parts
};

// What each row may look at, or none: all up to its own. A step in which all rows look at all cells needs no such list.
static const Seen* list_cells(const Part& part, bool only_step) {
    const Step& step = part.step;
    Room& room = part.room;
    if (step.sees && !(only_step && looks_at_all(step))) list_seen(part.team, step.sees, step.rows, step.filled, room.own[0]);
    if (step.real) list_seen(part.team, step.real, step.sentences, step.cells, room.real);
    return step.sees ? &room.own[0] : nullptr;
}

// All blocks, up to the logits of what follows, where they are asked for.
static void take(const Block* blocks, const Part& part, const Seen* seen) {
    const Step& step = part.step;
    const Team& team = part.team;
    Room &room = part.room, &own = part.own;
    const long rows = step.rows;
    std::vector<float> weights(padded(std::max<long>(step.filled, step.cells), LANES));
    float *x = step.x, *hidden = own.hidden.data(), *projected = room.projected.data(), *context = room.context.data();
    const float* now = x;
    if (step.tokens) embed(team, step);
    for (long layer = 0; layer < step.layers; layer++) {
        const Block& block = blocks[layer];
        now = around(team, step, block.around_attention, block.pre, now, hidden, [&](const float* from, const float* add) {
            team.apply(*block.project, from, projected, rows);
            attend_self(team, step, layer, seen, room, weights);
            team.apply(*block.output, context, x, rows, NONE, add);
        });
        if (block.ask)
            now = around(team, step, block.around_cross, block.pre, now, hidden, [&](const float* from, const float* add) {
                team.apply(*block.ask, from, projected, rows);
                attend_memory(team, step, layer, room, weights);
                team.apply(*block.answer, context, x, rows, NONE, add);
            });
        now = around(team, step, block.around_feed_forward, block.pre, now, hidden, [&](const float* from, const float* add) {
            if (block.gate) {
                team.apply(*block.gate, from, projected, rows, block.activation);
                team.apply(*block.expand, from, projected, rows, NONE, nullptr, projected);
            } else {
                team.apply(*block.expand, from, projected, rows, block.activation);
            }
            team.apply(*block.contract, projected, x, rows, NONE, add);
        });
    }
    if (step.last) {
        normalise(team, *step.last, now, hidden, rows, step.width);
        now = hidden;
    }
    if (step.predict) {
        team.apply(*step.predict, now, step.log_p, rows);
    } else if (now != x) {
        team.wait();  // somebody may still read x for a norm
        const Share its = team.of(rows * step.width);
        std::copy(now + its.first, now + its.last, x + its.first);
    }
}

// The same step for some of its sentences.
static Step part_of(const Step& step, Share sentences) {
    const long beam = step.rows / step.sentences, row = sentences.first * beam, half = step.head_width / 2;
    const long kept = sentences.first * step.layers * step.groups * step.capacity * step.head_width;
    const auto from = [](auto* all, long first) { return all ? all + first : nullptr; };
    Step part = step;
    part.sentences = sentences.last - sentences.first;
    part.rows = part.sentences * beam;
    part.tokens = from(step.tokens, row), part.at = from(step.at, row), part.cell = from(step.cell, row);
    part.x = from(step.x, row * step.width);
    part.keys = from(step.keys, kept), part.values = from(step.values, kept);
    part.sine = from(step.sine, row * half), part.cosine = from(step.cosine, row * half);
    part.sees = from(step.sees, row * step.filled), part.real = from(step.real, sentences.first * step.cells);
    part.memory_keys = from(step.memory_keys, sentences.first * step.sentence_stride);
    part.memory_values = from(step.memory_values, sentences.first * step.sentence_stride);
    part.log_p = from(step.log_p, step.predict ? row * step.predict->outputs : 0);
    return part;
}

// Whether all tables stay in a cache, so that each thread may read all of them.
static bool is_small(const Block* blocks, const Step& step) {
    constexpr long CACHE = 1 << 24;
    long bytes = 0;
    const auto add = [&](const Map* map) { bytes += map ? map->inputs * map->outputs * (map->bytes ? 1 : 4) : 0; };
    for (long layer = 0; layer < step.layers; layer++) {
        const Block& block = blocks[layer];
        add(block.project), add(block.output), add(block.ask), add(block.answer);
        add(block.expand), add(block.gate), add(block.contract);
    }
    add(step.predict);
    return bytes < CACHE;
}

static bool knows_tokens(const Step& step) {
    for (long row = 0; step.tokens && row < step.rows; row++)
        if (step.tokens[row] < 0 || step.tokens[row] >= step.words) return false;
    return true;
}

// Of a small model every thread takes its own of many sentences, and waits for nobody; otherwise they share out each
// table, which is read once that way. `work` is done by each thread with its part.
template <typename Work>
static void share_out(const Block* blocks, Step step, long filled, int at_most, Meeting& meeting, Work work) {
    constexpr long SENTENCES = 4, ROWS = 8;  // a thread's own, at least: few are shared out unevenly, or read too much
    constexpr long FEW = 4;  // rows
    const Company company(at_most);
    const int threads = company.size();
    Room& shared = room_of_thread;
    const bool many = step.sentences >= SENTENCES * threads && step.rows >= ROWS * threads;
    const bool apart = threads > 1 && many && is_small(blocks, step), few = step.rows <= FEW;
    if (!apart) make_room(shared, step, filled);
#pragma omp parallel num_threads(threads)
    {
        const int thread = omp_get_thread_num(), all = omp_get_num_threads();
        Room& own = apart || few ? room_of_thread : shared;
        const Share sentences = apart ? share(step.sentences, thread, all) : Share{0, step.sentences};
        Step its = apart ? part_of(step, sentences) : step;
        if (&own != &shared || apart) make_room(own, its, filled);
        if (apart)
            work(Part{its, sentences.first, own, own, Team{0, 1, meeting, own.quantised}, all});
        else
            work(Part{its, 0, shared, own, Team{thread, all, meeting, own.quantised, few}, all});
    }
    company.end(meeting);
}

// Whether all tokens have a row in the table: nothing is done where one has not.
static bool take_step(const Block* blocks, const Step& step, int threads) {
    if (!knows_tokens(step)) return false;
    Meeting meeting;
    if (step.rows)
        share_out(blocks, step, step.filled, threads, meeting,
                  [&](const Part& part) {
                      take(blocks, part, list_cells(part, true));
                      if (step.predict) log_softmax(part.team, part.step.log_p, part.step.rows, step.predict->outputs);
                  });
    return true;
}
