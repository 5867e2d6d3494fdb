#include "cli/commands.h"

int main(int argc, char** argv) { return kvbound::cli::Main(argc, argv); }
