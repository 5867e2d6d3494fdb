#include "cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "src/base/strings.h"

namespace kvbound::cli {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// Made before the handler is installed: a handler may not allocate.
char bus_message[512];
size_t bus_message_size = 0;

void OnInterrupt(int) { interrupted = true; }

void OnBusError(int) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, bus_message, bus_message_size);
  _exit(1);
}

void Install(int signal, void (*handler)(int), int flags) {
  struct sigaction action;
  std::memset(&action, 0, sizeof(action));
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

void InstallSignalHandlers(const std::string& model_path) {
  const std::string message =
      StrCat("kvbound: model file ", Printable(model_path, 400), " changed while in use\n");
  bus_message_size = message.copy(bus_message, sizeof(bus_message));
  Install(SIGINT, OnInterrupt, SA_RESETHAND);
  Install(SIGTERM, OnInterrupt, SA_RESETHAND);
  Install(SIGPIPE, SIG_IGN, 0);
  Install(SIGBUS, OnBusError, SA_RESETHAND);
}

bool Interrupted() { return interrupted; }

}  // namespace kvbound::cli
