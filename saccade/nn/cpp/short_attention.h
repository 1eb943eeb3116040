// Attention over few cells, in training: what is seen, and the gradients of that. With sequences as short as sentences,
// all of a head stays in the first cache.
//
//     P = softmax(scale Q K^T),  seen = P V
//     dV = P^T dO,  dP = dO V^T,  dS = scale P (dP - sum_s P dP),  dQ = dS K,  dK = dS^T Q
#pragma once

#include "attention.h"

struct Strided {
    float* data;  // (batch, heads, positions, width), the width without gaps
    int64_t batch, head, position;
    float* at(long b, long h) const { return data + b * batch + h * head; }
};

struct ShortAttention {
    int64_t batch, heads, groups, asking, cells, key_width, value_width, causal;
    double scale;
    const uint8_t* sees;  // (batch, heads, asking, cells) with these strides, or none: all, where causal all up to its own
    int64_t sees_batch, sees_head, sees_asking;
    Strided query, key, value;
    float* weights;  // (batch, heads, asking, cells padded to whole vectors)
    Strided seen, query_gradient, key_gradient, value_gradient;  // forward `seen` is written, backward it is the gradient
};

template <typename Each>
static void each_group(const ShortAttention& of, int threads, Each each) {
#pragma omp parallel for num_threads(threads)
    for (long pair = 0; pair < of.batch * of.groups; pair++) {
        thread_local std::vector<float> turned, slopes;
        const long across = padded(of.cells, LANES);
        turned.resize(std::max<size_t>(turned.size(), std::max(of.key_width, of.value_width) * across));
        slopes.resize(std::max<size_t>(slopes.size(), of.asking * across));
        each(pair / of.groups, pair % of.groups, turned.data(), slopes.data(), across);
    }
}

static void attend_short(const ShortAttention& of, int threads) {
    each_group(of, threads, [&](long b, long group, float* keys, float*, long across) {
        turn_over(of.key.at(b, group), of.key.position, of.cells, of.key_width, keys, across);
        const long each = of.heads / of.groups;
        for (long head = group * each; head < (group + 1) * each; head++) {
            float* weights = of.weights + (b * of.heads + head) * of.asking * across;
            multiply(of.asking, of.query.at(b, head), of.query.position, 1, of.key_width, keys, across, weights, across,
                     across);
            for (long t = 0; t < of.asking; t++) {
                const long at = b * of.sees_batch + head * of.sees_head + t * of.sees_asking;
                const uint8_t* sees = of.sees ? of.sees + at : nullptr;
                const long cells = of.causal ? std::min<long>(t + 1, of.cells) : of.cells;
                weigh(weights + t * across, (float)of.scale, sees, cells, across);
            }
            multiply(of.asking, weights, across, 1, of.cells, of.value.at(b, group), of.value.position, of.seen.at(b, head),
                     of.seen.position, of.value_width);
        }
    });
}

static void attend_short_backward(const ShortAttention& of, int threads) {
    each_group(of, threads, [&](long b, long group, float* values, float* slopes, long across) {
        turn_over(of.value.at(b, group), of.value.position, of.cells, of.value_width, values, across);
        const long each = of.heads / of.groups;
        for (long head = group * each; head < (group + 1) * each; head++) {
            const bool more = head > group * each;  // heads of a group add up
            const float *weights = of.weights + (b * of.heads + head) * of.asking * across, *seen = of.seen.at(b, head);
            multiply(of.asking, seen, of.seen.position, 1, of.value_width, values, across, slopes, across, across);
            for (long t = 0; t < of.asking; t++) {
                const float* weight = weights + t * across;
                float *slope = slopes + t * across, mean = 0.0f;
#pragma omp simd reduction(+ : mean)
                for (long cell = 0; cell < across; cell++) mean += weight[cell] * slope[cell];
                for (long cell = 0; cell < across; cell++)
                    slope[cell] = (float)of.scale * weight[cell] * (slope[cell] - mean);
            }
            multiply(of.asking, slopes, across, 1, of.cells, of.key.at(b, group), of.key.position,
                     of.query_gradient.at(b, head), of.query_gradient.position, of.key_width);
            multiply(of.cells, slopes, 1, across, of.asking, of.query.at(b, head), of.query.position,
                     of.key_gradient.at(b, group), of.key_gradient.position, of.key_width, more);
            multiply(of.cells, weights, 1, across, of.asking, seen, of.seen.position, of.value_gradient.at(b, group),
                     of.value_gradient.position, of.value_width, more);
        }
    });
}
