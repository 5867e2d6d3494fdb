#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"
#include "kvbound/policy.h"

namespace kvbound::cli {
namespace {

nlohmann::ordered_json PolicyRecord(const PolicyInfo& info) {
  return {{"name", info.name},
          {"summary", info.summary},
          {"paper", info.paper},
          {"granularity", GranularityName(info.granularity)},
          {"default_sinks", info.default_protection.sinks},
          {"default_recent", info.default_protection.recent},
          {"default_pin_prompt", info.default_protection.pin_prompt}};
}

int Policies(bool json) {
  const std::vector<PolicyInfo> infos = ListPolicies();
  if (json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const PolicyInfo& info : infos) all.push_back(PolicyRecord(info));
    std::printf("%s\n", Dump(all).c_str());
    return kExitOk;
  }
  size_t name_width = 4;
  size_t paper_width = 5;
  for (const PolicyInfo& info : infos) {
    name_width = std::max(name_width, info.name.size());
    paper_width = std::max(paper_width, info.paper.size());
  }
  const auto print = [&](const std::string& name, const std::string& paper,
                         const std::string& summary) {
    std::printf("%-*s  %-*s  %s\n", static_cast<int>(name_width), name.c_str(),
                static_cast<int>(paper_width), paper.c_str(), summary.c_str());
  };
  print("name", "paper", "what is kept");
  for (const PolicyInfo& info : infos) print(info.name, info.paper, info.summary);
  return kExitOk;
}

}  // namespace

Command AddPolicies(CLI::App* app) {
  CLI::App* policies = app->add_subcommand("policies", "What --policy can name");
  auto json = std::make_shared<bool>(false);
  policies->add_flag("--json", *json, "Print one JSON array");
  return {policies, [json] { return Policies(*json); }};
}

}  // namespace kvbound::cli
