// A consumer of the installed package: everything it needs comes with find_package(kvbound).
#include <cstdio>

#include "kvbound/model.h"
#include "kvbound/version.h"

int main() {
  const auto model = kvbound::Model::Load("absent.gguf", {});
  std::printf("kvbound %s: %s\n", kvbound::kVersion, model.status().message().c_str());
  return model.ok() ? 1 : 0;
}
