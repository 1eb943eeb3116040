// What all layers of a decoder remember of an encoder's states: keys and values by one map, of those that are real.
#pragma once

#include "model.h"

struct Memory {
    const Map* map;         // from a state to (2, heads, head_width): keys, then values
    const float* states;    // (sentences, cells, inputs)
    int64_t sentences, cells, heads, head_width;
    const uint8_t* real;    // (sentences, cells), or none: all
    float *keys, *values;   // (sentences, heads, cells, head_width); where nothing is real, 0
};

static void remember(const Memory& memory, int at_most) {
    constexpr long AT_ONCE = 192;  // states, so that what is made of them stays in a cache until it is put in its place
    const Map& map = *memory.map;
    const long width = memory.head_width, across = memory.heads * width;
    std::vector<long> real;
    for (long cell = 0; cell < memory.sentences * memory.cells; cell++) {
        if (!memory.real || memory.real[cell]) {
            real.push_back(cell);
            continue;
        }
        const long sentence = cell / memory.cells, place = cell % memory.cells;
        for (float* to : {memory.keys, memory.values})
            for (long head = 0; head < memory.heads; head++)
                std::fill_n(to + ((sentence * memory.heads + head) * memory.cells + place) * width, width, 0.0f);
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
                const long sentence = real[first + row] / memory.cells, place = real[first + row] % memory.cells;
                const float* from = &made[row * map.outputs];
                for (long head = 0; head < memory.heads; head++) {
                    const long to = ((sentence * memory.heads + head) * memory.cells + place) * width;
                    memcpy(memory.keys + to, from + head * width, width * sizeof(float));
                    memcpy(memory.values + to, from + across + head * width, width * sizeof(float));
                }
            }
            team.wait();
        }
    }
    company.end(meeting);
}
