// Sums of products by a processor's matrix unit (Intel's AMX): 16 x 16 of them at once, of 64 inputs in eight bits.
//
// It has eight registers of 16 rows of 64 bytes: here four of sums, two of inputs, two of weights. A table is read as it
// lies for vectors, four inputs of an output side by side, and integers have no rounding: sums are the same to the bit.
#pragma once

#include "vectors.h"

#if HAS_BYTES && defined(__AMX_INT8__) && defined(__AVX512VNNI__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

// The unit, for as long as somebody has it in use; with nobody, the system has less to save.
class MatrixUnit {
    static constexpr long SIDE = 16, BYTES = 64;  // of a register: rows, and how long they are
    static constexpr long BELOW = 4 * PANEL, BESIDE = 4 * SIDE;  // bytes from weights to those of the next inputs, outputs
    static_assert(PANEL == 4 * SIDE, "four registers of weights are a panel");

    // Whether the system lets this process use it: it wants to be asked, because registers are so large.
    static bool is_ours() {
        constexpr long ASK = 0x1023, REGISTERS = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
        static const bool granted = syscall(SYS_arch_prctl, ASK, REGISTERS) == 0;
        return granted;
    }

    template <int to>
    static void clear() {
        asm volatile("tilezero %%tmm%c0" : : "i"(to));
    }
    template <int to>
    static void load(const void* from, long stride) {
        asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(to), "r"(from), "r"(stride) : "memory");
    }
    template <int from>
    static void store(void* to, long stride) {
        asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(from), "r"(to), "r"(stride) : "memory");
    }
    template <int sums, int inputs, int weights>  // signed and unsigned
    static void add_products() {
        asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(inputs), "i"(weights));
    }

   public:
    static constexpr long WHOLE = BYTES;                 // inputs are a multiple of it, with zeros behind them
    static constexpr long ROWS = SIDE, MOST = 2 * SIDE;  // what is read of rows, whether they are there or not; of a block
    static constexpr long LEAST = 12;                    // with fewer rows, vectors are as fast
    const bool used;

    explicit MatrixUnit(bool wanted) : used(wanted && is_ours()) {
        if (!used) return;
        struct alignas(BYTES) {
            uint8_t palette = 1, start = 0, unused[14] = {};
            uint16_t bytes[16] = {};
            uint8_t rows[16] = {};
        } registers;
        for (int i = 0; i < 8; i++) registers.bytes[i] = BYTES, registers.rows[i] = SIDE;
        asm volatile("ldtilecfg %0" : : "m"(registers) : "memory");
    }
    MatrixUnit(const MatrixUnit&) = delete;
    ~MatrixUnit() {
        if (used) asm volatile("tilerelease" : : : "memory");
    }

    // How many outputs there are sums of at a time: four registers full, of up to 16 rows or of up to 32.
    static long across(long rows) { return rows <= SIDE ? 4 * SIDE : 2 * SIDE; }

    // sum_i (W + 128)_oi q_i of up to 32 rows. With each 64 inputs, so many lines of what is read next are brought nearer.
    static void sum(long rows, const int8_t* from, long depth, const uint8_t* weights, int32_t* sums, const char* ahead,
                    long lines) {
        constexpr long LINE = 64;
        const long wide = across(rows), tall = wide == 2 * SIDE;
        clear<0>(), clear<1>(), clear<2>(), clear<3>();
        for (long i = 0; i < depth; i += BYTES, from += BYTES, weights += BYTES / 4 * BELOW) {
            for (long line = 0; line < lines; line++, ahead += LINE) __builtin_prefetch(ahead, 0, 2);
            load<4>(from, depth);
            load<6>(weights, BELOW), add_products<0, 4, 6>();
            load<7>(weights + BESIDE, BELOW), add_products<1, 4, 7>();
            if (tall) {
                load<5>(from + SIDE * depth, depth), add_products<2, 5, 6>(), add_products<3, 5, 7>();
            } else {
                load<6>(weights + 2 * BESIDE, BELOW), add_products<2, 4, 6>();
                load<7>(weights + 3 * BESIDE, BELOW), add_products<3, 4, 7>();
            }
        }
        int32_t* const rest = sums + (tall ? SIDE * wide : 2 * SIDE);
        store<0>(sums, 4 * wide), store<1>(sums + SIDE, 4 * wide);
        store<2>(rest, 4 * wide), store<3>(rest + SIDE, 4 * wide);
    }
};
#else
struct MatrixUnit {  // there is none
    static constexpr long WHOLE = 4, ROWS = 1, MOST = 1, LEAST = 1;
    static constexpr bool used = false;
    explicit MatrixUnit(bool) {}
    static long across(long) { return PANEL; }
    static void sum(long, const int8_t*, long, const uint8_t*, int32_t*, const char*, long) {}
};
#endif
