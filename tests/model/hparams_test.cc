#include "model/hparams.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "testing/expect_refused.h"
#include "testing/gguf_writer.h"
#include "testing/tiny_model.h"

namespace kvbound {
namespace {

using testing::BoolKey;
using testing::ExpectRefused;
using testing::F32Key;
using testing::GgufKey;
using testing::GgufSpec;
using testing::MakeTinyModel;
using testing::NumberKey;
using testing::NumbersKey;
using testing::StringKey;
using testing::TinyModelOptions;
using testing::U32Key;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

GgufSpec TinySpec() { return MakeTinyModel().Spec(); }

Result<HParams> Read(const GgufSpec& spec) {
  const testing::GgufBytes bytes = BuildGguf(spec);
  KVBOUND_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::FromMemory(bytes, "t.gguf"));
  return ReadHParams(file);
}

Result<HParams> ReadWith(GgufKey key) { return Read(TinySpec().Set(std::move(key))); }

TEST(HParamsTest, ReadsATinyModel) {
  const Result<HParams> hp = Read(TinySpec());
  ASSERT_TRUE(hp.ok()) << hp.status();
  EXPECT_EQ(hp->arch, Arch::kLlama);
  EXPECT_EQ(hp->name, "tiny");
  EXPECT_EQ(hp->n_layer, 2);
  EXPECT_EQ(hp->n_embd, 32);
  EXPECT_EQ(hp->n_head, 4);
  EXPECT_EQ(hp->n_kv_head, 2);
  EXPECT_EQ(hp->head_dim, 8);
  EXPECT_EQ(hp->n_ff, 48);
  EXPECT_EQ(hp->n_vocab, 286);
  EXPECT_EQ(hp->n_ctx_train, 128);
  EXPECT_FLOAT_EQ(hp->rms_eps, 1e-5f);
  EXPECT_EQ(hp->rope.n_rot, 8);
  EXPECT_EQ(hp->rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(hp->rope.freq_scale(), 1.0f);
  EXPECT_FALSE(hp->rope.neox);
  EXPECT_TRUE(hp->may_have_qkv_bias);
  EXPECT_FALSE(hp->has_qk_norm);
  EXPECT_EQ(hp->bos_id, 1);
  EXPECT_EQ(hp->eos_id, 2);
}

TEST(HParamsTest, ReadsEveryArchitecture) {
  TinyModelOptions options;
  options.arch = Arch::kQwen2;
  Result<HParams> hp = Read(MakeTinyModel(options).Spec());
  ASSERT_TRUE(hp.ok()) << hp.status();
  EXPECT_TRUE(hp->rope.neox);
  EXPECT_TRUE(hp->may_have_qkv_bias);
  EXPECT_FALSE(hp->has_qk_norm);
  options.arch = Arch::kQwen3;
  options.head_dim = 16;
  hp = Read(MakeTinyModel(options).Spec());
  ASSERT_TRUE(hp.ok()) << hp.status();
  EXPECT_EQ(hp->head_dim, 16);
  EXPECT_TRUE(hp->rope.neox);
  EXPECT_FALSE(hp->may_have_qkv_bias);
  EXPECT_TRUE(hp->has_qk_norm);
}

TEST(HParamsTest, RefusesOtherArchitectures) {
  constexpr const char* kKey = "'general.architecture'";
  for (const char* name : {"mamba", "", "Llama", "qwen2moe", "llama "}) {
    ExpectRefused(ReadWith(StringKey("general.architecture", name)).status(),
                  {kKey, "llama, qwen2, qwen3", name});
  }
  ExpectRefused(ReadWith(U32Key("general.architecture", 3)).status(), {kKey, "string", "u32"});
  ExpectRefused(Read(TinySpec().Drop("general.architecture")).status(), {kKey, "missing"});
}

TEST(HParamsTest, RequiresItsKeys) {
  for (const char* name : {"llama.context_length", "llama.embedding_length", "llama.block_count",
                           "llama.feed_forward_length", "llama.attention.head_count",
                           "llama.attention.layer_norm_rms_epsilon"}) {
    ExpectRefused(Read(TinySpec().Drop(name)).status(), {"t.gguf", name, "missing"});
    ExpectRefused(ReadWith(StringKey(name, "4")).status(), {name, "string"});
    ExpectRefused(ReadWith(BoolKey(name, true)).status(), {name, "bool"});
  }
}

TEST(HParamsTest, RefusesCountsOutOfRange) {
  for (const char* name : {"llama.context_length", "llama.embedding_length", "llama.block_count",
                           "llama.feed_forward_length", "llama.attention.head_count",
                           "llama.attention.head_count_kv", "llama.rope.dimension_count"}) {
    ExpectRefused(ReadWith(U32Key(name, 0)).status(), {name, "found 0"});
    ExpectRefused(ReadWith(NumberKey(name, GgufType::kI32, -4)).status(), {name, "-4"});
    ExpectRefused(ReadWith(NumberKey(name, GgufType::kU64, 1e19)).status(), {name, "found"});
  }
  ExpectRefused(ReadWith(U32Key("llama.block_count", 1025)).status(), {"block_count", "1..1024"});
}

TEST(HParamsTest, ChecksHeadCounts) {
  const std::string heads = "llama.attention.head_count", kv_heads = heads + "_kv";
  for (const uint32_t n : {3u, 5u, 8u, 1000u}) {
    ExpectRefused(ReadWith(U32Key(kv_heads, n)).status(), {kv_heads, "divisor", std::to_string(n)});
  }
  ExpectRefused(Read(TinySpec().Set(U32Key(heads, 7)).Drop(kv_heads)).status(),
                {heads, "llama.embedding_length"});
  ExpectRefused(Read(TinySpec().Set(U32Key(heads, 64)).Drop(kv_heads)).status(), {heads, "64"});
  ExpectRefused(ReadWith(U32Key("llama.embedding_length", 33)).status(),
                {"llama.embedding_length", "33"});
  const Result<HParams> absent = Read(TinySpec().Drop(kv_heads));
  ASSERT_TRUE(absent.ok()) << absent.status();
  EXPECT_EQ(absent->n_kv_head, absent->n_head);
}

TEST(HParamsTest, TakesPerLayerArraysOnlyOfEqualNumbers) {
  const std::string key = "llama.attention.head_count_kv";
  const Result<HParams> equal = ReadWith(NumbersKey(key, GgufType::kU32, {2, 2}));
  ASSERT_TRUE(equal.ok()) << equal.status();
  EXPECT_EQ(equal->n_kv_head, 2);
  ExpectRefused(ReadWith(NumbersKey(key, GgufType::kI32, {2, 1})).status(), {key, "2 and 1"});
  ExpectRefused(ReadWith(NumbersKey(key, GgufType::kI32, {-2, -2})).status(), {key, "0"});
  ExpectRefused(ReadWith(NumbersKey(key, GgufType::kI32, {})).status(), {key, "array of 0"});
  ExpectRefused(ReadWith(NumbersKey(key, GgufType::kF32, {2, 2})).status(), {key, "f32"});
  ExpectRefused(ReadWith(testing::StringsKey(key, {"2"})).status(), {key, "string"});
}

TEST(HParamsTest, ChecksHeadSizes) {
  const std::string k = "llama.attention.key_length", v = "llama.attention.value_length";
  ExpectRefused(Read(TinySpec().Set(U32Key(k, 16))).status(), {v, k, "16", "found 8"});
  ExpectRefused(Read(TinySpec().Set(U32Key(k, 0))).status(), {k, "found 0"});
  const Result<HParams> hp = Read(TinySpec().Set(U32Key(k, 16)).Set(U32Key(v, 16)));
  ASSERT_TRUE(hp.ok()) << hp.status();
  EXPECT_EQ(hp->head_dim, 16);
}

TEST(HParamsTest, ChecksTheVocabularySize) {
  ExpectRefused(ReadWith(U32Key("llama.vocab_size", 9)).status(),
                {"llama.vocab_size", "286", "found 9"});
  EXPECT_TRUE(Read(TinySpec().Drop("llama.vocab_size")).ok());
  ExpectRefused(Read(TinySpec().DropTensor("token_embd.weight")).status(),
                {"token_embd.weight", "missing"});
  ExpectRefused(ReadWith(U32Key("tokenizer.ggml.bos_token_id", 286)).status(),
                {"tokenizer.ggml.bos_token_id", "286"});
}

TEST(HParamsTest, ChecksFloats) {
  const std::string eps = "llama.attention.layer_norm_rms_epsilon";
  for (const float bad : {kNan, kInfinity, -1.0f, 0.0f}) {
    ExpectRefused(ReadWith(F32Key(eps, bad)).status(), {eps, "finite"});
  }
  for (const float bad : {kNan, kInfinity, 0.0f, -10000.0f}) {
    ExpectRefused(ReadWith(F32Key("llama.rope.freq_base", bad)).status(),
                  {"llama.rope.freq_base", "finite"});
  }
  EXPECT_TRUE(ReadWith(NumberKey("llama.rope.freq_base", GgufType::kF64, 1e6)).ok());
  ExpectRefused(ReadWith(NumberKey("llama.rope.freq_base", GgufType::kF64, 1e300)).status(),
                {"llama.rope.freq_base"});
}

TEST(HParamsTest, ChecksRotation) {
  const std::string key = "llama.rope.dimension_count";
  for (const uint32_t n : {1u, 7u, 10u, 64u}) {
    ExpectRefused(ReadWith(U32Key(key, n)).status(), {key, "even", std::to_string(n)});
  }
  const Result<HParams> partial = ReadWith(U32Key(key, 4));
  ASSERT_TRUE(partial.ok()) << partial.status();
  EXPECT_EQ(partial->rope.n_rot, 4);
}

TEST(HParamsTest, ReadsLinearScaling) {
  const Result<HParams> linear = Read(TinySpec()
                                          .Set(StringKey("llama.rope.scaling.type", "linear"))
                                          .Set(F32Key("llama.rope.scaling.factor", 4.0f)));
  ASSERT_TRUE(linear.ok()) << linear.status();
  EXPECT_EQ(linear->rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(linear->rope.freq_scale(), 0.25f);
  EXPECT_EQ(linear->rope.ext_factor, 0.0f);
  const Result<HParams> legacy = ReadWith(F32Key("llama.rope.scale_linear", 2.0f));
  ASSERT_TRUE(legacy.ok()) << legacy.status();
  EXPECT_EQ(legacy->rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(legacy->rope.factor, 2.0f);
  const Result<HParams> none = Read(TinySpec()
                                        .Set(StringKey("llama.rope.scaling.type", "none"))
                                        .Set(F32Key("llama.rope.scaling.factor", 4.0f)));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(none->rope.factor, 1.0f);
}

TEST(HParamsTest, ReadsYarn) {
  GgufSpec spec = TinySpec()
                      .Set(StringKey("llama.rope.scaling.type", "yarn"))
                      .Set(F32Key("llama.rope.scaling.factor", 4.0f))
                      .Set(U32Key("llama.rope.scaling.original_context_length", 32));
  Result<HParams> hp = Read(spec);
  ASSERT_TRUE(hp.ok()) << hp.status();
  EXPECT_EQ(hp->rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(hp->rope.orig_ctx, 32);
  EXPECT_EQ(hp->rope.ext_factor, 1.0f);
  EXPECT_EQ(hp->rope.attn_factor, 1.0f);
  EXPECT_EQ(hp->rope.beta_fast, 32.0f);
  EXPECT_EQ(hp->rope.beta_slow, 1.0f);
  spec.Set(F32Key("llama.rope.scaling.yarn_ext_factor", 0.0f))
      .Set(F32Key("llama.rope.scaling.yarn_attn_factor", 1.5f))
      .Set(F32Key("llama.rope.scaling.attn_factor", 2.0f))
      .Set(F32Key("llama.rope.scaling.yarn_beta_fast", 16.0f))
      .Set(F32Key("llama.rope.scaling.yarn_beta_slow", 2.0f));
  hp = Read(spec);
  ASSERT_TRUE(hp.ok()) << hp.status();
  EXPECT_EQ(hp->rope.attn_factor, 3.0f);
  EXPECT_EQ(hp->rope.beta_fast, 16.0f);
  EXPECT_EQ(hp->rope.beta_slow, 2.0f);
}

TEST(HParamsTest, RefusesUnknownScaling) {
  for (const char* type : {"longrope", "", "su"}) {
    ExpectRefused(ReadWith(StringKey("llama.rope.scaling.type", type)).status(),
                  {"llama.rope.scaling.type", "yarn", type});
  }
  for (const float bad : {kNan, 0.0f, -2.0f, kInfinity}) {
    ExpectRefused(ReadWith(F32Key("llama.rope.scaling.factor", bad)).status(),
                  {"llama.rope.scaling.factor"});
    ExpectRefused(ReadWith(F32Key("llama.rope.scale_linear", bad)).status(),
                  {"llama.rope.scale_linear"});
  }
}

TEST(HParamsTest, RefusesWhatWouldBeIgnored) {
  for (const char* name : {"llama.expert_count", "llama.expert_used_count"}) {
    ExpectRefused(ReadWith(U32Key(name, 8)).status(), {name, "8"});
    EXPECT_TRUE(ReadWith(U32Key(name, 0)).ok());
  }
  for (const char* name : {"llama.attention.clamp_kqv", "llama.attention.scale",
                           "llama.attn_logit_softcapping", "llama.logit_scale"}) {
    ExpectRefused(ReadWith(F32Key(name, 8.0f)).status(), {name, "8"});
    ExpectRefused(ReadWith(F32Key(name, kNan)).status(), {name});
    ExpectRefused(ReadWith(StringKey(name, "8")).status(), {name, "number"});
  }
  EXPECT_TRUE(ReadWith(F32Key("llama.logit_scale", 1.0f)).ok());
  ExpectRefused(ReadWith(BoolKey("llama.attention.causal", false)).status(), {"causal"});
  ExpectRefused(ReadWith(U32Key("llama.attention.sliding_window", 64)).status(),
                {"llama.attention.sliding_window", "64"});
  EXPECT_TRUE(ReadWith(U32Key("llama.attention.sliding_window", 0)).ok());
  EXPECT_TRUE(ReadWith(U32Key("llama.attention.sliding_window", 128)).ok());
}

}  // namespace
}  // namespace kvbound
