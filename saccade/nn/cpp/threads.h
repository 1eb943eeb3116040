// How threads share out their work, and wait for each other. They are OpenMP's, the same as torch's.
#pragma once

#include <omp.h>

#include <atomic>
#include <chrono>
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

static double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Where all threads of a region wait for the last: awake at first, because the parts of a step take microseconds, of which
// OpenMP's own way takes half of one; then asleep, because somebody is kept away by other work.
class Meeting {
    std::atomic<int> arrived{0}, held{0}, asleep{0};
    std::mutex door;
    std::condition_variable open;
    double slept = 0.0;

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
        const double since = seconds();
        open.wait(closed, [&] { return held != before; });
        slept += seconds() - since;
        --asleep;
    }

    // Of all threads, when none is here any more.
    double seconds_asleep() const { return slept; }
};

// How many threads are worth waiting for: all, unless other work keeps them from their processors, so that most of a call
// went by asleep. The next calls are then made by one, for so much longer that another try costs little.
class Company {
    static inline std::atomic<double> alone_until{0.0};
    double begun = seconds();
    int threads;

   public:
    explicit Company(int all) : threads(begun < alone_until ? 1 : all) {}

    int size() const { return threads; }

    void end(const Meeting& meeting) const {
        constexpr double MOST = 0.6, LONGER = 20.0;
        const double now = seconds(), took = now - begun;
        if (threads > 1 && meeting.seconds_asleep() > MOST * (threads - 1) * took) alone_until = now + LONGER * took;
    }
};
