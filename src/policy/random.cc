// random: evicts uniformly at random, the control that every other policy must beat.
//
// Paper        Random Attention, arXiv 2609.03430
// Keeps        a uniform sample of the slots that are not protected, drawn anew at each cut
// Granularity  per head (default), per layer or shared
// Cost         one hash per set and slot
// Deviations   the paper keeps the prompt and the last 64 tokens: pin_prompt and recent 64.
//              By default 4 sinks and 32 recent tokens are protected, as for the other policies.

#include "policy/policies.h"

namespace kvbound {

namespace {

// The finaliser of SplitMix64: a bijection that mixes all bits.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Random : public EvictionPolicy {
 public:
  Random(uint64_t seed, Granularity granularity) : seed_(seed), granularity_(granularity) {}

  PolicyInfo Info() const override {
    PolicyInfo info;
    info.name = "random";
    info.summary =
        "keeps a uniform random sample; with the prompt pinned (--pin-prompt) as published";
    info.paper = "arXiv 2609.03430";
    info.granularity = granularity_;
    info.default_protection.sinks = 4;
    info.default_protection.recent = 32;
    return info;
  }

  // A draw depends on seed, tokens seen, set and position alone: not on the slot order, on other
  // sequences, or on how many cuts this object has seen.
  Status Score(const CacheView& view, ScoreTable& scores) override {
    const uint64_t cut = Mix(Mix(seed_) ^ static_cast<uint64_t>(view.tokens_seen()));
    for (int32_t set = 0; set < view.n_set(); ++set) {
      const uint64_t key = Mix(cut ^ static_cast<uint64_t>(set));
      const std::span<const Position> positions = view.positions(set);
      const std::span<float> row = scores.Row(set);
      for (size_t slot = 0; slot < row.size(); ++slot) {
        const uint64_t draw = Mix(key ^ static_cast<uint64_t>(positions[slot].value));
        row[slot] = static_cast<float>(draw >> 40);  // 24 bits: exact in a float
      }
    }
    return Status::Ok();
  }

 private:
  const uint64_t seed_;
  const Granularity granularity_;
};

}  // namespace

MadePolicy MakeRandom(const PolicyOptions& options) {
  const Granularity granularity = options.granularity.value_or(Granularity::kPerHead);
  return MadePolicy(std::make_unique<Random>(options.seed.value_or(1), granularity));
}

}  // namespace kvbound
