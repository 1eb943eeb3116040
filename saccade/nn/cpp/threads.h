// How threads share out their work, and wait for each other. They are OpenMP's, the same as torch's.
#pragma once

#include <omp.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

struct Share {
    long first, last;
};

static Share share(long count, int thread, int threads) {
    return {count * thread / threads, count * (thread + 1) / threads};
}

// Where all threads of a region wait for the last: awake at first, because the parts of a step take microseconds, of which
// OpenMP's own way takes half of one; then asleep, because somebody is kept away by other work.
class Meeting {
    std::atomic<int> arrived{0}, held{0}, asleep{0};
    std::mutex door;
    std::condition_variable open;

    static void rest() {
#if defined(__x86_64__) || defined(__i386__)
        _mm_pause();
#endif
    }

   public:
    void wait(int threads) {
        const int before = held;
        if (++arrived == threads) {
            arrived = 0;
            held = before + 1;
            if (!asleep) return;
            { const std::lock_guard<std::mutex> closed(door); }  // whoever counts as asleep is by now, or has seen it
            open.notify_all();
            return;
        }
        static const int processors = omp_get_num_procs();
        const long patience = threads > processors ? 1 << 8 : 1 << 13;
        for (long turn = 0; turn < patience; turn++, rest())
            if (held != before) return;
        std::unique_lock<std::mutex> closed(door);
        ++asleep;
        open.wait(closed, [&] { return held != before; });
        --asleep;
    }
};
