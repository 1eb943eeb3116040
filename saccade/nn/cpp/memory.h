// What all layers of a decoder remember of an encoder's states: keys and values by one map, of those that are real.
#pragma once

#include "model.h"

struct Memory {
    const Map* map;         // from a state to (2, heads, head_width): keys, then values
    const float* states;    // (sentences, cells, inputs)
    int64_t sentences, cells, heads, head_width;
    const uint8_t* real;    // (sentences, cells), or none: all
    float *keys, *values;   // (sentences, heads, cells, head_width); where nothing is real, 0

    // Where a head has what it remembers of a state, which is one of all.
    long place_of(long state, long head) const {
        return ((state / cells * heads + head) * cells + state % cells) * head_width;
    }
};

static void remember(const Memory& memory, int at_most) {
    constexpr long AT_ONCE = 192;  // states, so that what is made of them stays in a cache until it is put in its place
    const Map& map = *memory.map;
    const long width = memory.head_width, across = memory.heads * width;
    std::vector<long> real;
    for (long state = 0; state < memory.sentences * memory.cells; state++) {
        if (!memory.real || memory.real[state])
            real.push_back(state);
        else
            for (long head = 0; head < memory.heads; head++)
                for (float* to : {memory.keys, memory.values}) std::fill_n(to + memory.place_of(state, head), width, 0.0f);
    }
    const long count = real.size(), most = std::min(AT_ONCE, count);
    std::vector<float> states(most * map.inputs), made(most * map.outputs);
    Quantised quantised;
    if (map.bytes) quantised.make_room(most, map.inputs);
    const Company company(at_most);
    Meeting meeting;
#pragma omp parallel num_threads(company.size())
    {
        const Team team{omp_get_thread_num(), omp_get_num_threads(), meeting, quantised};
        for (long first = 0; first < count; first += AT_ONCE) {
            const long rows = std::min(AT_ONCE, count - first);
            const Share own = team.of(rows);
            for (long row = own.first; row < own.last; row++)
                memcpy(&states[row * map.inputs], memory.states + real[first + row] * map.inputs, map.inputs * sizeof(float));
            team.wait();
            team.apply(map, states.data(), made.data(), rows);
            for (long row = own.first; row < own.last; row++) {
                const float* from = &made[row * map.outputs];
                for (long head = 0; head < memory.heads; head++) {
                    const long to = memory.place_of(real[first + row], head);
                    memcpy(memory.keys + to, from + head * width, width * sizeof(float));
                    memcpy(memory.values + to, from + across + head * width, width * sizeof(float));
                }
            }
            team.wait();
        }
    }
    company.end(meeting);
}
