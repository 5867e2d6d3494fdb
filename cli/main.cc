#include "src/base/spin_limit.h"
#include "cli/commands.h"

int main(int argc, char** argv) {
  kvbound::LimitOpenMpSpinning(argv);
  return kvbound::cli::Main(argc, argv);
}
