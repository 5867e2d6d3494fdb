#ifndef KVBOUND_KERNELS_DOT_Q8_H_
#define KVBOUND_KERNELS_DOT_Q8_H_

#include <cstddef>
#include <cstdint>

namespace kvbound {

// out[r] = row r times x: n_row rows of `row_bytes` and x, each of n_block blocks as ggml's q8_0
// (a half precision scale, 32 signed bytes). Faster than row by row, since x is shared.
void DotQ8(const std::byte* rows, size_t row_bytes, int32_t n_row, const std::byte* x,
           int32_t n_block, float* out);

}  // namespace kvbound

#endif  // KVBOUND_KERNELS_DOT_Q8_H_
