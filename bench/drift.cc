// How far keys drift from where one rotation in f32 would have put them, as rebases turn them on
// and round them again: after a long text, over all slots of all heads.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "generate/engine_impl.h"
#include "kv/kv_type.h"
#include "kvbound/gates.h"
#include "machine_common.h"
#include "model/rope.h"
#include "ours_common.h"
#include "report_common.h"

namespace kvbound::bench {
namespace {

// A key as it entered the cache.
struct Entered {
  std::vector<float> key;
  int32_t rope_at_entry = 0;
  int32_t rope = 0;
  int32_t turns = 0;
};

// Follows the keys of a session from their entry to their eviction.
class Follower {
 public:
  Follower(Engine& engine, Session& session) : engine_(engine), session_(session) {
    const ModelInfo& info = engine.model().info();
    dim_ = info.head_dim;
    n_kv_head_ = info.n_kv_head;
    heads_.resize(size_t(info.n_layer) * info.n_kv_head);
    session.SetCutObserver([this](const CutEvent& event) { Follow(event); });
  }

  struct Drift {
    double mean_turns = 0, max_turns = 0;
    double rms = 0, worst = 0;  // error as a share of a key's length
    double rms_once = 0;        // of a key turned in f32 and rounded once
  };

  Drift Measure() {
    Drift drift;
    const ggml_type type = ToGgmlType(engine_.options().type_k);
    KeyTurner turner(RotationOf(engine_.model().loaded()), GGML_TYPE_F32, dim_);
    int64_t n = 0;
    for (size_t head = 0; head < heads_.size(); ++head) {
      const std::vector<float> keys = Keys(head);
      const std::span<const Position> positions = session_.positions(SetOf(head));
      const std::span<const RopePosition> rope = session_.rope_positions(SetOf(head));
      for (size_t slot = 0; slot < positions.size(); ++slot) {
        const auto found = heads_[head].find(positions[slot].value);
        if (found == heads_[head].end()) continue;  // came after the last cut
        const Entered& entered = found->second;
        const int32_t turns = entered.turns + (entered.rope != rope[slot].value ? 1 : 0);
        std::vector<float> wanted = entered.key;
        turner.SetDelta(rope[slot].value - entered.rope_at_entry);
        turner.Turn(wanted.data());
        const double error = Share(std::span(keys).subspan(slot * dim_, dim_), wanted);
        drift.rms_once += Square(Share(Rounded(type, wanted), wanted));
        drift.rms += Square(error);
        drift.worst = std::max(drift.worst, error);
        drift.mean_turns += turns;
        drift.max_turns = std::max<double>(drift.max_turns, turns);
        ++n;
      }
    }
    drift.rms = std::sqrt(drift.rms / n);
    drift.rms_once = std::sqrt(drift.rms_once / n);
    drift.mean_turns /= n;
    return drift;
  }

 private:
  static double Square(double x) { return x * x; }

  static double Share(std::span<const float> found, std::span<const float> wanted) {
    double error = 0, length = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      error += Square(found[i] - wanted[i]);
      length += Square(wanted[i]);
    }
    return std::sqrt(error / length);
  }

  std::vector<float> Rounded(ggml_type type, const std::vector<float>& row) const {
    std::vector<uint8_t> bytes(ggml_row_size(type, dim_));
    ggml_quantize_chunk(type, row.data(), bytes.data(), 0, 1, dim_, nullptr);
    std::vector<float> rounded(dim_);
    if (type == GGML_TYPE_F32) return row;
    ggml_get_type_traits(type)->to_float(bytes.data(), rounded.data(), dim_);
    return rounded;
  }

  int32_t SetOf(size_t head) const {
    return static_cast<int32_t>(head * session_.n_set() / heads_.size());
  }

  std::vector<float> Keys(size_t head) {
    std::vector<float> keys(session_.positions(SetOf(head)).size() * dim_);
    EngineImpl& impl = engine_.impl();
    Must(impl.store->ReadKeys(session_.impl().seq, head / n_kv_head_, head % n_kv_head_, keys));
    return keys;
  }

  void Follow(const CutEvent& event) {
    for (size_t head = 0; head < heads_.size(); ++head) {
      const std::vector<float> keys = Keys(head);
      const size_t first = size_t(SetOf(head)) * event.n_before;
      const std::span<const RopePosition> rope = session_.rope_positions(SetOf(head));
      for (int32_t slot = 0; slot < event.n_before; ++slot) {
        const int32_t position = event.positions[first + slot].value;
        const auto [found, is_new] = heads_[head].try_emplace(position);
        Entered& entered = found->second;
        if (is_new) {
          entered.key.assign(&keys[slot * dim_], &keys[slot * dim_] + dim_);
          entered.rope = entered.rope_at_entry = rope[slot].value;
        } else if (entered.rope != rope[slot].value) {
          entered.rope = rope[slot].value;
          ++entered.turns;
        }
        if (!event.kept[first + slot]) heads_[head].erase(found);
      }
    }
  }

  Engine& engine_;
  Session& session_;
  size_t dim_ = 0;
  int32_t n_kv_head_ = 0;
  std::vector<std::map<int32_t, Entered>> heads_;
};

void Run(int argc, char** argv) {
  const Arguments arguments(argc, argv,
                            {"model", "text", "threads", "budget", "chunk", "policies", "types",
                             "tokens", "position-limit", "gates", "f32-weights", "quick"});
  ModelOptions weights;
  weights.dequantize_f32 = arguments.Has("f32-weights");
  const std::shared_ptr<const Model> model = Must(Model::Load(ModelPath(arguments), weights));
  const int64_t n_tokens = arguments.Int("tokens", arguments.Has("quick") ? 12000 : 102400);
  const std::vector<Token> text = TextTokens(*model, TextPath(arguments), n_tokens);
  Table table({"policy", "K", "rebases", "turns of a key, mean (most)", "error, rms (worst)",
               "of one rounding, rms"});
  bool first = true;
  for (const std::string& policy : SplitList(arguments.Text("policies", "retention"))) {
    for (const std::string& type : SplitList(arguments.Text("types", "f32,f16,q8_0,q4_0"))) {
      EngineOptions options = EngineFor(policy, arguments.Int("budget", 512),
                                        arguments.Int("chunk", 128), arguments.Int("threads", 0));
      options.type_k = Must(ParseKvType(type));
      options.position_limit = arguments.Int("position-limit", 0);
      if (policy == "retention") {
        options.gates = Must(Gates::Load(
            arguments.Text("gates", KVBOUND_SOURCE_DIR "/gates/smollm2-135m-instruct.gguf")));
      }
      const auto engine = Must(Engine::Create(model, options));
      const auto session = Must(engine->NewSession(SessionOptions{}));
      if (std::exchange(first, false)) PrintMachine(argc, argv, engine->options().n_threads, false);
      Follower follower(*engine, *session);
      Must(session->Feed(text));
      const Follower::Drift drift = follower.Measure();
      const auto percent = [](double share) { return Number(100 * share, 3) + " %"; };
      table.Add({policy, type, std::to_string(session->stats().rebases),
                 Number(drift.mean_turns) + " (" + Number(drift.max_turns, 0) + ")",
                 percent(drift.rms) + " (" + percent(drift.worst) + ")", percent(drift.rms_once)});
    }
  }
  table.Print();
}

}  // namespace
}  // namespace kvbound::bench

int main(int argc, char** argv) { kvbound::bench::Run(argc, argv); }
