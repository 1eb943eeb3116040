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
    const float largest = largest_of(x, width);
    float total = 0.0f;
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

static void make_room(Room& room, Step& step) {
    const long rows = step.rows, all = (step.heads + 2 * step.groups) * step.head_width;
    const long widest = std::max<long>({step.hidden, all, step.width});
    room.x.resize(std::max<size_t>(room.x.size(), step.x ? 0 : rows * step.width));
    if (!step.x) step.x = room.x.data();
    room.hidden.resize(std::max<size_t>(room.hidden.size(), rows * step.width));
    room.projected.resize(std::max<size_t>(room.projected.size(), rows * widest));
    room.context.resize(std::max<size_t>(room.context.size(), rows * step.heads * step.head_width));
    room.quantised.make_room(rows, widest);
}

// What the rows of a step look at: cells of what was written, or none: all up to their own; and of the memory, or none: all.
struct Sight {
    Seen own, real;
};

// A thread's part of the work: which step it is, or of which sentences, and with whom it is shared. `room` is the team's,
// and `own` where each thread has the rows that it takes care of itself.
struct Part {
    Step step;
    long first_row;
    Room &room, &own;
    Team team;

    // Lists what its rows look at, where the step says it.
    void list(const Sight& all) const {
        const Share rows = team.of(step.rows), sentences = team.of(step.sentences);
        for (long row = rows.first; all.own && row < rows.last; row++)
            list_seen(step.sees, step.filled, all.own.from(first_row), row);
        for (long sentence = sentences.first; all.real && sentence < sentences.last; sentence++)
            list_seen(step.real, step.cells, all.real, step.place_of(sentence));
        team.wait();
    }
};

// All blocks, up to the logits of what follows, where they are asked for. Where the states of the rows lie.
static const float* take(const Block* blocks, const Part& part, const Sight& sight) {
    const Step& step = part.step;
    const Seen seen = sight.own ? sight.own.from(part.first_row) : Seen{};
    const Team& team = part.team;
    Room &room = part.room, &own = part.own;
    const long rows = step.rows;
    std::vector<float> weights(HEADS * padded(std::max<long>(step.filled, step.cells), LANES));
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
                attend_memory(team, step, layer, sight.real, room, weights);
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
        return now;
    }
    if (now != x) {
        team.wait();  // somebody may still read x for a norm
        const Share its = team.of(rows * step.width);
        std::copy(now + its.first, now + its.last, x + its.first);
    }
    return x;
}

// The same step for some of its sentences.
static Step part_of(const Step& step, Share sentences) {
    const long row = sentences.first * (step.rows / step.sentences);
    const auto from = [](auto* all, long first) { return all ? all + first : nullptr; };
    Step part = step;
    part.first += sentences.first, part.sentences = sentences.last - sentences.first;
    part.rows = part.sentences * (step.rows / step.sentences);
    part.tokens = from(step.tokens, row), part.at = from(step.at, row), part.cell = from(step.cell, row);
    part.x = from(step.x, row * step.width);
    part.sees = from(step.sees, row * step.filled);
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

// Threads that take steps together, in a parallel region.
struct Crew {
    const bool small;
    Room& shared;
    Meeting& meeting;

    // A thread's part of a step. Of a small model every thread takes its own of many sentences, and waits for nobody;
    // otherwise they share out each table, which is read once that way.
    Part part(const Step& step, int thread, int threads) const {
        constexpr long SENTENCES = 4, ROWS = 8;  // a thread's own, at least: few are shared out unevenly, or read too much
        constexpr long FEW = 4;  // rows
        const bool many = step.sentences >= SENTENCES * threads && step.rows >= ROWS * threads;
        const bool apart = threads > 1 && many && small, few = step.rows <= FEW;
        Room& own = apart || few ? room_of_thread : shared;
        const Share sentences = apart ? share(step.sentences, thread, threads) : Share{0, step.sentences};
        Step its = part_of(step, sentences);
        if (&own != &shared) make_room(own, its);
        const long first_row = sentences.first * (step.rows / step.sentences);
        if (apart) return Part{its, first_row, own, own, Team{0, 1, meeting, own.quantised}};
        return Part{its, first_row, shared, own, Team{thread, threads, meeting, own.quantised, few}};
    }

    void wait(int threads) const {
        if (threads > 1) meeting.wait(threads);
    }
};

// `work` is done by each of the threads, with a crew in whose room this thread has made enough for the step.
template <typename Work>
static void together(const Block* blocks, const Step& step, int at_most, Work work) {
    const Company company(at_most);
    Meeting meeting;
    const Crew crew{is_small(blocks, step), room_of_thread, meeting};
#pragma omp parallel num_threads(company.size())
    work(crew, omp_get_thread_num(), omp_get_num_threads());
    company.end(meeting);
}

// Whether all tokens have a row in the table: nothing is done where one has not.
static bool take_step(const Block* blocks, Step step, int threads) {
    if (!knows_tokens(step)) return false;
    if (!step.rows) return true;
    Sight sight;
    if (step.sees && !looks_at_all(step)) sight.own = room_of_thread.own[0].of(step.rows, step.filled);
    if (step.real) sight.real = room_of_thread.real.of(step.sentences, step.cells);
    make_room(room_of_thread, step);
    together(blocks, step, threads, [&](const Crew& crew, int thread, int all) {
        const Part part = crew.part(step, thread, all);
        part.list(sight);
        take(blocks, part, sight);
        if (step.predict) log_softmax(part.team, part.step.log_p, part.step.rows, step.predict->outputs);
    });
    return true;
}
