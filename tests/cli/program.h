#ifndef KVBOUND_CLI_PROGRAM_H_
#define KVBOUND_CLI_PROGRAM_H_

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

// Runs the built program as a shell would, without a shell.
namespace kvbound::testing {

struct ProgramResult {
  int exit_status = -1;  // -1: ended by a signal
  int signal = 0;
  std::string out;
  std::string err;
};

// A running program whose output is collected.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments, const std::string& input = "") {
    int in[2], out[2], err[2];
    if (pipe(in) != 0 || pipe(out) != 0 || pipe(err) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      for (int fd : {in[0], in[1], out[0], out[1], err[0], err[1]}) close(fd);
      std::vector<char*> argv;
      arguments.insert(arguments.begin(), KVBOUND_PROGRAM);
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      execv(KVBOUND_PROGRAM, argv.data());
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    close(err[1]);
    // Tests pass less than a pipe holds, so this never blocks.
    signal(SIGPIPE, SIG_IGN);
    if (write(in[1], input.data(), input.size()) < 0) result_.err = "(input was not taken)";
    close(in[1]);
    out_ = out[0];
    err_ = err[0];
  }
  ~Program() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      Wait();
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }

  // Reads until `done` holds for what was printed so far, or the program ends.
  const ProgramResult& ReadUntil(const std::function<bool(const ProgramResult&)>& done) {
    while ((out_ >= 0 || err_ >= 0) && !done(result_)) ReadSome();
    return result_;
  }
  void CloseOutput() {
    close(out_);
    out_ = -1;
  }

  // Reads the rest and waits for the end.
  ProgramResult Wait() {
    ReadUntil([](const ProgramResult&) { return false; });
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    if (WIFEXITED(status)) result_.exit_status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result_.signal = WTERMSIG(status);
    return result_;
  }

 private:
  void ReadSome() {
    pollfd fds[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) return;
    Take(fds[0], &out_, &result_.out);
    Take(fds[1], &err_, &result_.err);
  }

  static void Take(const pollfd& ready, int* fd, std::string* text) {
    if (*fd < 0 || ready.revents == 0) return;
    char block[65536];
    const ssize_t n = read(*fd, block, sizeof(block));
    if (n > 0) {
      text->append(block, static_cast<size_t>(n));
    } else {
      close(*fd);
      *fd = -1;
    }
  }

  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  ProgramResult result_;
};

inline ProgramResult RunProgram(std::vector<std::string> arguments, const std::string& input = "") {
  return Program(std::move(arguments), input).Wait();
}

}  // namespace kvbound::testing

// Refused: exit status `status`, nothing on standard output, one line on standard error with
// `text`.
#define EXPECT_REFUSED_BY_PROGRAM(result, status, text)                                    \
  do {                                                                                     \
    const auto& refused = (result);                                                        \
    EXPECT_EQ(refused.exit_status, status) << refused.err;                                 \
    EXPECT_EQ(refused.out, "");                                                            \
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err; \
    EXPECT_EQ(refused.err.rfind("kvbound: ", 0), 0u) << refused.err;                       \
    EXPECT_NE(refused.err.find(text), std::string::npos) << refused.err;                   \
  } while (false)

#endif  // KVBOUND_CLI_PROGRAM_H_
