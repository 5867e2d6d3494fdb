#ifndef KVBOUND_BENCH_REPORT_COMMON_H_
#define KVBOUND_BENCH_REPORT_COMMON_H_

#include <cstdint>
#include <string>
#include <vector>

namespace kvbound::bench {

// Command line of a benchmark: "--name value" and "--name", each at most once.
class Arguments {
 public:
  // Ends the program with a message if an argument is not one of `names` ("--help" lists them).
  Arguments(int argc, char** argv, const std::vector<std::string>& names);

  bool Has(const std::string& name) const;
  int64_t Int(const std::string& name, int64_t otherwise) const;
  std::string Text(const std::string& name, const std::string& otherwise) const;

 private:
  std::vector<std::string> names_;
  std::vector<std::string> values_;
};

// The same measurement, several times.
class Samples {
 public:
  void Add(double value) { values_.push_back(value); }
  bool empty() const { return values_.empty(); }
  double Median() const;
  // "74.1 (72.9-75.0)": median and range.
  std::string Text(int digits = 1) const;

 private:
  std::vector<double> values_;
};

// A markdown table, columns aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void Print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string Number(double value, int digits = 1);

// Prints "NAME: ratio 2.71 (target >= 2.5: met)"; `at_most` turns the comparison.
void PrintTarget(const std::string& name, double value, double target, bool at_most = false);

// Ends the program with the message.
[[noreturn]] void Fail(const std::string& message);

}  // namespace kvbound::bench

#endif  // KVBOUND_BENCH_REPORT_COMMON_H_
