// What Python calls. Everything else is included, so that one command compiles it for the processor at hand.
#include "loss.h"
#include "memory.h"
#include "short_attention.h"
#include "stretch.h"

extern "C" {

int64_t panel() { return PANEL; }
int64_t lanes() { return LANES; }
int64_t has_bytes() { return HAS_BYTES; }
int64_t has_pairs() { return HAS_PAIRS; }
int64_t levels() {
#if HAS_BYTES
    return LEVELS;
#else
    return 0;
#endif
}

void pack_floats(const float* table, float* packed, int64_t outputs, int64_t inputs) {
    for (long first = 0; first < outputs; first += PANEL)
        for (long i = 0; i < inputs; i++)
            for (long c = 0; c < PANEL; c++)
                packed[first * inputs + i * PANEL + c] = first + c < outputs ? table[(first + c) * inputs + i] : 0.0f;
}

int64_t depth_in_bytes(int64_t inputs) { return padded(inputs, MatrixUnit::WHOLE); }

void pack_bytes(const int8_t* table, uint8_t* packed, int64_t outputs, int64_t inputs) {
    const long depth = depth_in_bytes(inputs);
    for (long first = 0; first < outputs; first += PANEL)
        for (long i = 0; i < depth; i++)
            for (long c = 0; c < PANEL; c++) {
                const bool inside = first + c < outputs && i < inputs;
                const int number = inside ? table[(first + c) * inputs + i] : 0;
                packed[first * depth + i / 4 * 4 * PANEL + 4 * c + i % 4] = (uint8_t)(number + 128);
            }
}

void apply(const Map* map, const float* x, float* y, int64_t rows, int64_t threads) {
    thread_local Quantised quantised;
    Quantised& shared = quantised;
    const Company company((int)threads);
    Meeting meeting;
    if (map->bytes) shared.make_room(rows, map->inputs);
#pragma omp parallel num_threads(company.size()) if (rows * map->outputs * map->inputs > (1 << 18))
    Team{omp_get_thread_num(), omp_get_num_threads(), meeting, shared}.apply(*map, x, y, rows);
    company.end(meeting);
}

void log_softmax(float* x, int64_t rows, int64_t width, int64_t threads) {
    Meeting meeting;
    Quantised unused;
#pragma omp parallel num_threads(threads) if (rows * width > (1 << 16))
    log_softmax(Team{omp_get_thread_num(), omp_get_num_threads(), meeting, unused}, x, rows, width);
}

void continuations(const float* log_p, const double* score, int64_t sentences, int64_t width, int64_t words,
                   int64_t each, int64_t count, const Ways* ways, int64_t threads) {
    const long rows = sentences * width;
    Choice choice(rows, width, each, count);
#pragma omp parallel for num_threads(threads) if (rows * words > (1 << 16))
    for (long row = 0; row < rows; row++) choice.look_at(log_p + row * words, 0.0f, words, row);
    for (long sentence = 0; sentence < sentences; sentence++) choice.choose(score, sentence, *ways);
}

void cross_entropy(const Loss* loss, int64_t in_pairs, int64_t threads) {
#if HAS_PAIRS
    if (in_pairs) return smoothed_loss<Pair>(*loss, (int)threads);
#endif
    smoothed_loss<Single>(*loss, (int)threads);
}

void short_attention(const ShortAttention* of, int64_t backward, int64_t threads) {
    backward ? attend_short_backward(*of, (int)threads) : attend_short(*of, (int)threads);
}

void remember(const Memory* memory, int64_t threads) { remember(*memory, (int)threads); }

int64_t transformer_step(const Block* blocks, const Step* step, int64_t threads) {
    return take_step(blocks, *step, (int)threads);
}

int64_t transformer_stretch(const Block* blocks, const Step* step, Stretch* stretch, int64_t threads) {
    return take_stretch(blocks, *step, *stretch, (int)threads);
}
}
