#include <gtest/gtest.h>

#include "kvbound/policy.h"

namespace kvbound {
namespace {

std::unique_ptr<EvictionPolicy> MustMake(const PolicyOptions& options) {
  Result<std::unique_ptr<EvictionPolicy>> policy = MakePolicy(options);
  EXPECT_TRUE(policy.ok()) << policy.status();
  return *std::move(policy);
}

PolicyOptions Named(const char* name) {
  PolicyOptions options;
  options.name = name;
  return options;
}

void ExpectRefused(const PolicyOptions& options, const char* parameter) {
  const Status status = MakePolicy(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << options.name << " " << parameter;
  EXPECT_NE(status.message().find("'" + options.name + "'"), std::string::npos) << status;
  EXPECT_NE(status.message().find(std::string("'") + parameter + "'"), std::string::npos) << status;
}

TEST(RegistryTest, ListsEveryPolicyOnceAndMakesIt) {
  std::vector<std::string> names;
  for (const PolicyInfo& info : ListPolicies()) {
    names.push_back(info.name);
    EXPECT_FALSE(info.summary.empty());
    EXPECT_FALSE(info.paper.empty());
    EXPECT_EQ(MustMake(Named(info.name.c_str()))->Info().name, info.name);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"none", "window", "streaming", "h2o", "random",
                                      "counter-causal", "counter-causal-fast", "retention"}));
}

TEST(RegistryTest, TheDefaultIsFastCounterCausal) {
  EXPECT_EQ(MustMake({})->Info().name, "counter-causal-fast");
}

TEST(RegistryTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  for (const char* name : {"", "Window", "h3o", "counter_causal"}) {
    const Status status = MakePolicy(Named(name)).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_NE(status.message().find("none, window, streaming, h2o, random, counter-causal, "
                                    "counter-causal-fast"),
              std::string::npos)
        << status;
  }
}

TEST(RegistryTest, AParameterThatAPolicyDoesNotTakeIsRefusedByName) {
  for (const PolicyInfo& info : ListPolicies()) {
    const bool random = info.name == "random";
    const bool retention = info.name == "retention";
    const bool counter_causal = info.name.starts_with("counter-causal");
    PolicyOptions options = Named(info.name.c_str());
    options.seed = 1;
    if (random) {
      MustMake(options);
    } else {
      ExpectRefused(options, "seed");
    }
    options = Named(info.name.c_str());
    options.granularity = Granularity::kShared;
    if (random || retention || info.name == "h2o") {
      MustMake(options);
    } else {
      ExpectRefused(options, "granularity");
    }
    options = Named(info.name.c_str());
    options.counter_causal = CounterCausalOptions{};
    if (counter_causal) {
      MustMake(options);
    } else {
      ExpectRefused(options, "counter_causal");
    }
    options = Named(info.name.c_str());
    options.retention = RetentionOptions{};
    if (retention) {
      MustMake(options);
    } else {
      ExpectRefused(options, "retention");
    }
  }
}

TEST(RegistryTest, CounterCausalParametersOfTheOtherVariantAreRefused) {
  PolicyOptions options = Named("counter-causal");
  options.counter_causal = CounterCausalOptions{};
  options.counter_causal->ffn = true;
  ExpectRefused(options, "ffn");
  options.name = "counter-causal-fast";
  MustMake(options);

  options.counter_causal = CounterCausalOptions{};
  options.counter_causal->reading = CounterCausalOptions::Reading::kB;
  ExpectRefused(options, "reading");
  options.name = "counter-causal";
  MustMake(options);

  options.counter_causal = CounterCausalOptions{};
  options.counter_causal->neutral = CounterCausalOptions::Neutral::kBos;
  ExpectRefused(options, "neutral");  // reading A has no neutral vector
  options.counter_causal->reading = CounterCausalOptions::Reading::kD;
  MustMake(options);
  options.counter_causal->reading = CounterCausalOptions::Reading::kA;
  options.name = "counter-causal-fast";
  ExpectRefused(options, "neutral");

  for (const char* name : {"counter-causal", "counter-causal-fast"}) {
    options = Named(name);
    options.counter_causal = CounterCausalOptions{};
    options.counter_causal->min_gap = -1;
    ExpectRefused(options, "min_gap");
  }
}

TEST(RegistryTest, RetentionTakesAHorizonWithFutureUtilityOnly) {
  PolicyOptions options = Named("retention");
  options.retention.emplace().horizon = 100;
  EXPECT_EQ(MakePolicy(options).status().code(), StatusCode::kInvalidArgument);
  options.retention->score = RetentionOptions::Score::kFuture;
  MustMake(options);
  options.retention->horizon = -1;
  EXPECT_EQ(MakePolicy(options).status().code(), StatusCode::kInvalidArgument);
}

TEST(RegistryTest, InfoTellsWhatTheEngineMustProvide) {
  EXPECT_FALSE(MustMake(Named("none"))->Info().evicts);
  EXPECT_EQ(MustMake(Named("streaming"))->Info().default_protection.sinks, 4);
  EXPECT_EQ(MustMake(Named("window"))->Info().default_protection.sinks, 0);
  EXPECT_EQ(MustMake(Named("random"))->Info().granularity, Granularity::kPerHead);
  EXPECT_EQ(MustMake(Named("counter-causal"))->Info().model_score, ModelScore::kCounterCausalFull);
  EXPECT_TRUE(MustMake(Named("retention"))->Info().needs_gates);
  EXPECT_FALSE(MustMake(Named("retention"))->Info().cuts_when_full);
  PolicyOptions options = Named("counter-causal-fast");
  EXPECT_EQ(MustMake(options)->Info().model_score, ModelScore::kCounterCausalFast);
  EXPECT_FALSE(MustMake(options)->Info().needs_next_token);
  options.counter_causal = CounterCausalOptions{};
  options.counter_causal->align = CounterCausalOptions::Align::kPublished;
  options.counter_causal->min_gap = 4;
  EXPECT_TRUE(MustMake(options)->Info().needs_next_token);
  EXPECT_EQ(MustMake(options)->Info().min_recent, 5);
}

}  // namespace
}  // namespace kvbound
