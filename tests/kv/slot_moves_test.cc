#include "kv/slot_moves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "ggml-backend.h"

namespace kvbound {
namespace {

std::vector<SlotMove> Plan(const std::vector<uint8_t>& keep) {
  std::vector<SlotMove> moves(keep.size());
  const auto kept = static_cast<int32_t>(keep.size() - std::count(keep.begin(), keep.end(), 0));
  moves.resize(PlanMoves(keep, kept, moves));
  return moves;
}

void ExpectMoves(const std::vector<uint8_t>& keep, std::vector<std::pair<int, int>> expected) {
  const std::vector<SlotMove> moves = Plan(keep);
  ASSERT_EQ(moves.size(), expected.size());
  for (size_t i = 0; i < moves.size(); ++i) {
    EXPECT_EQ(moves[i].from, expected[i].first);
    EXPECT_EQ(moves[i].to, expected[i].second);
  }
}

TEST(PlanMovesTest, SurvivorsOfTheTailFillHolesInOrder) {
  ExpectMoves({1, 1, 1, 1}, {});
  ExpectMoves({0, 0, 0}, {});
  ExpectMoves({1, 1, 0, 0}, {});
  ExpectMoves({0, 0, 1, 1}, {{2, 0}, {3, 1}});
  ExpectMoves({1, 0, 1, 0, 0, 1, 0, 1}, {{5, 1}, {7, 3}});
  ExpectMoves({0, 1, 1, 0, 1}, {{4, 0}});
}

// One tensor in ordinary memory, filled with distinct bytes per row.
class Tensor {
 public:
  Tensor(ggml_type type, int64_t ne0, int64_t ne1) {
    context_ = ggml_init({ggml_tensor_overhead(), nullptr, true});
    tensor_ = ggml_new_tensor_2d(context_, type, ne0, ne1);
    auto* cpu = ggml_backend_cpu_buffer_type_or_null();
    buffer_ = ggml_backend_buft_alloc_buffer(cpu, ggml_nbytes(tensor_));
    ggml_backend_tensor_alloc(buffer_, tensor_, ggml_backend_buffer_get_base(buffer_));
    std::mt19937 rng(7);
    for (size_t i = 0; i < ggml_nbytes(tensor_); ++i) data()[i] = static_cast<uint8_t>(rng());
  }
  ~Tensor() {
    ggml_backend_buffer_free(buffer_);
    ggml_free(context_);
  }

  ggml_tensor* get() const { return tensor_; }
  uint8_t* data() const { return static_cast<uint8_t*>(tensor_->data); }
  std::vector<uint8_t> Bytes() const { return {data(), data() + ggml_nbytes(tensor_)}; }

 private:
  static ggml_backend_buffer_type_t ggml_backend_cpu_buffer_type_or_null() {
    return ggml_backend_dev_buffer_type(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
  }

  ggml_context* context_;
  ggml_tensor* tensor_;
  ggml_backend_buffer_t buffer_;
};

// Through a staging area of a whole plane or of one row, the result is that of plain memory.
TEST(MoveTest, StagedEqualsDirect) {
  const std::vector<uint8_t> keep = {1, 0, 1, 0, 0, 1, 0, 1};
  const std::vector<SlotMove> moves = Plan(keep);
  struct Case {
    ggml_type type;
    int64_t ne0, ne1;
    bool transposed;
  };
  for (const Case& c : {Case{GGML_TYPE_F16, 6, 16, false}, Case{GGML_TYPE_Q8_0, 32, 16, false},
                        Case{GGML_TYPE_F32, 8, 12, true}, Case{GGML_TYPE_BF16, 8, 12, true}}) {
    // The second half of the tensor is the plane: the first must stay as it is.
    const Tensor direct(c.type, c.ne0, c.ne1);
    const size_t row = direct.get()->nb[1];
    const auto n_row = static_cast<int32_t>(c.ne1 / 2);
    SlotPlane plane{direct.get(), row * n_row, 8, row, n_row, c.transposed};
    const std::vector<uint8_t> before = direct.Bytes();
    MoveDirect(plane, moves);
    const std::vector<uint8_t> expected = direct.Bytes();
    EXPECT_NE(expected, before);
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + plane.offset, expected.begin()));

    std::vector<size_t> staging_sizes = {plane.bytes()};
    if (!c.transposed) staging_sizes.push_back(row);
    for (const size_t size : staging_sizes) {
      const Tensor staged(c.type, c.ne0, c.ne1);
      plane.tensor = staged.get();
      std::vector<uint8_t> staging(size);
      MoveStaged(plane, moves, staging);
      EXPECT_EQ(staged.Bytes(), expected);
    }
  }
}

}  // namespace
}  // namespace kvbound
