#include <algorithm>
#include <iomanip>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/strings.h"
#include "kvbound/gates.h"
#include "kvbound/model.h"
#include "model/loaded_model.h"

namespace kvbound {
namespace {

// Norms and biases: every quantisation of a model keeps them in f32. The rotation factors are left
// out, since converters write them or not.
uint64_t NormHash(const GgufFile& file) {
  std::vector<const GgufTensor*> vectors;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.n_dims == 1 && tensor.type == GGML_TYPE_F32 && tensor.name != "rope_freqs.weight") {
      vectors.push_back(&tensor);
    }
  }
  std::sort(vectors.begin(), vectors.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->name < b->name; });
  uint64_t hash = Fnv1a64("");
  const auto add = [&hash](const void* data, size_t n_bytes) {
    hash = Fnv1a64({static_cast<const char*>(data), n_bytes}, hash);
  };
  for (const GgufTensor* tensor : vectors) {
    const auto n = static_cast<uint64_t>(tensor->ne[0]);
    add(tensor->name.data(), tensor->name.size());
    add(&n, sizeof(n));
    add(tensor->data, tensor->n_bytes);
  }
  return hash;
}

std::string Hex(uint64_t value) {
  std::ostringstream out;
  out << std::hex << std::setfill('0') << std::setw(16) << value;
  return out.str();
}

}  // namespace

BaseModel DescribeBase(const Model& model) {
  const ModelInfo& info = model.info();
  BaseModel base;
  base.architecture = info.architecture;
  base.name = info.name;
  base.n_layer = info.n_layer;
  base.n_embd = info.n_embd;
  base.n_kv_head = info.n_kv_head;
  base.n_vocab = info.n_vocab;
  base.norm_hash = NormHash(model.loaded().file());
  return base;
}

Status Gates::CheckBase(const Model& model) const {
  const BaseModel& own = parts_.base;
  const BaseModel found = DescribeBase(model);
  const auto error = [&](std::string_view field, const auto& expected, const auto& value) {
    return InvalidArgument(StrCat(path_.empty() ? "gates" : path_, ": gates of the model '",
                                  Printable(own.name), "' do not fit ", model.info().path, " ('",
                                  found.name, "'): ", field, ": expected ", expected, ", found ",
                                  value));
  };
  if (own.architecture != found.architecture) {
    return error("architecture", Printable(own.architecture), found.architecture);
  }
  const struct {
    std::string_view field;
    int32_t expected;
    int32_t found;
  } kCounts[] = {{"layers", own.n_layer, found.n_layer},
                 {"n_embd", own.n_embd, found.n_embd},
                 {"KV heads per layer", own.n_kv_head, found.n_kv_head},
                 {"vocabulary", own.n_vocab == 0 ? found.n_vocab : own.n_vocab, found.n_vocab}};
  for (const auto& count : kCounts) {
    if (count.expected != count.found) return error(count.field, count.expected, count.found);
  }
  if (own.norm_hash != 0 && own.norm_hash != found.norm_hash) {
    return error("hash of norms and biases (the same for every quantisation of one model)",
                 Hex(own.norm_hash), Hex(found.norm_hash));
  }
  return Status::Ok();
}

}  // namespace kvbound
