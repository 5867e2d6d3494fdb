#include "cli/commands.h"
#include "cli/spin_limit.h"

int main(int argc, char** argv) {
  kvbound::LimitOpenMpSpinning(argv);
  return kvbound::cli::Main(argc, argv);
}
