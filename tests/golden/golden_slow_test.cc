// Every golden case that lies beside the checkout, on both models.

#include <gtest/gtest.h>

#include <iostream>

#include "golden/print.h"
#include "golden/run_cases.h"
#include "testing/paths.h"

namespace kvbound::golden {
namespace {

void RunAll(const NamedModel& model) {
  const auto cases = testing::SharedDir() / "data/golden";
  KVBOUND_SKIP_WITHOUT(cases);
  KVBOUND_SKIP_WITHOUT(model.file);
  const RunRequest request{cases, {model}, {model.name + "-"}, {}};
  const auto names = ListCases(request);
  ASSERT_TRUE(names.ok()) << names.status();
  TablePrinter table(std::cout, *names, /*verbose=*/false);
  table.PrintHeader();
  const auto summary = RunCases(request, [&](const CaseResult& result) {
    table.Print(result);
    EXPECT_NE(result.outcome, Outcome::kFail) << result.name << ": " << result.reason;
  });
  ASSERT_TRUE(summary.ok()) << summary.status();
  table.PrintSummary(*summary);
  EXPECT_TRUE(summary->ok());
}

TEST(GoldenSlow, Stories260k) {
  const auto folder = testing::SharedDir() / "data/models/stories260k";
  RunAll({"stories260k", (folder / "tinyllamas-stories-260k-f32.gguf").string()});
}

TEST(GoldenSlow, SmolLm2) { RunAll({"smollm2", testing::DefaultModel().string()}); }

}  // namespace
}  // namespace kvbound::golden
