#ifndef KVBOUND_MODEL_GRAPH_RUNNER_H_
#define KVBOUND_MODEL_GRAPH_RUNNER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ggml-cpp.h"
#include "ggml-cpu.h"
#include "kvbound/status.h"
#include "model/graph.h"
#include "model/thread_governor.h"

namespace kvbound {

// A forward pass that a runner must be able to take, with any smaller number of slots and tokens.
struct GraphCase {
  GraphSpec spec;
  std::vector<SeqRun> runs;
};

// What a runner allocates.
struct RunnerSizes {
  std::optional<GraphCase> largest;  // fills the compute buffer; none: the vocabulary block does
  uint64_t compute_bytes = 0;        // activations of the largest graph, shared by all graphs
  uint64_t work_bytes = 0;           // scratch of the CPU's operators
  size_t n_counter = 0;              // of fused attention; part of work_bytes
  uint64_t graph_bytes = 0;          // descriptions of all cached graphs
  size_t graph_slot_bytes = 0;       // of one cached graph
};

// What decides the sizes.
struct RunnerOptions {
  int32_t n_threads = 1;         // at most; fewer while other processes need the cores
  int32_t n_cached = 8;          // graphs kept built
  std::vector<GraphCase> cases;  // the largest passes
  int64_t vocab_block_rows = 0;  // 0: no pass over blocks of the vocabulary
  int64_t vocab_block_cols = 0;
};

// Builds graphs on first use, keeps the most recently used ones, and computes them in one compute
// buffer that is allocated by Create and never grows. Not thread-safe.
class GraphRunner {
 public:
  // The bytes that Create would allocate. Works on shapes alone. Unsupported, naming the operator,
  // if the device cannot compute one of the cases.
  static Result<RunnerSizes> Measure(const GraphSources& sources, const RunnerOptions& options);

  // The same before there is a store: over tensors that have a shape only.
  static Result<RunnerSizes> MeasureShapes(const LoadedModel& model, const KvLayout& layout,
                                           const LoadedGates* gates, AttentionPath attention,
                                           const RunnerOptions& options);

  // `sources` and what it refers to must outlive the runner.
  static Result<std::unique_ptr<GraphRunner>> Create(const GraphSources& sources,
                                                     const RunnerOptions& options);
  ~GraphRunner();

  // The graph of `spec`, built now or before. Set all its inputs, then Compute; valid until the
  // next Get. Internal if it does not fit what Measure reserved.
  Result<const Graph*> Get(const GraphSpec& spec, std::span<const SeqRun> runs);

  // The graph of one block of the vocabulary, for BuildVocabBlock's inputs and outputs.
  Result<const Graph*> GetVocabBlock();
  // Which rows of the head it multiplies: [first_row, first_row + vocab_block_rows).
  void SetVocabBlock(int64_t first_row);

  Status Compute(const Graph& graph);

  RunnerSizes allocated() const;
  int64_t vocab_block_rows() const { return options_.vocab_block_rows; }

 private:
  struct Entry {
    bool built = false;
    bool is_vocab_block = false;
    GraphSpec spec;
    std::vector<SeqRun> runs;
    uint64_t last_use = 0;
    ggml_context_ptr context;
    Graph graph;
    ggml_cplan plan;
  };

  GraphRunner(const GraphSources& sources, const RunnerOptions& options)
      : sources_(sources), options_(options), governor_(options.n_threads) {}
  Status Allocate(const RunnerSizes& sizes);
  Status Reserve();
  Entry& LeastRecentlyUsed();
  Status Finish(Entry* entry);

  GraphSources sources_;
  RunnerOptions options_;
  RunnerSizes sizes_;
  ggml_backend_ptr backend_;  // null on the CPU, which is called directly
  ggml_threadpool* threads_ = nullptr;
  ThreadGovernor governor_;
  ggml_gallocr_ptr allocator_;
  std::vector<uint8_t> graph_memory_;
  std::vector<uint8_t> work_;
  std::vector<std::atomic<int32_t>> counters_;
  std::vector<Entry> entries_;
  uint64_t clock_ = 0;
};

}  // namespace kvbound

#endif  // KVBOUND_MODEL_GRAPH_RUNNER_H_
