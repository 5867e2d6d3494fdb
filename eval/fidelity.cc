#include "eval/fidelity.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "eval/divergence.h"
#include "src/base/strings.h"

namespace kvbound::eval {
namespace {

double Mean(const std::vector<TextFidelity>& texts, double TextFidelity::*field) {
  double sum = 0;
  for (const TextFidelity& text : texts) sum += text.*field;
  return texts.empty() ? 0 : sum / static_cast<double>(texts.size());
}

Status CheckInput(const std::vector<std::vector<Token>>& texts,
                  const std::vector<FidelityPolicy>& policies, const FidelityOptions& options) {
  if (texts.empty()) return InvalidArgument("fidelity: expected at least one text, found none");
  if (policies.empty())
    return InvalidArgument("fidelity: expected at least one policy, found none");
  if (options.chunk < 1 || options.skip < 0) {
    return InvalidArgument(
        StrCat("fidelity: expected a chunk of at least 1 and a skip of at least "
               "0, found ",
               options.chunk, " and ", options.skip));
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() < static_cast<size_t>(options.skip) + 2) {
      return InvalidArgument(StrCat("fidelity: text ", i, ": expected at least ", options.skip + 2,
                                    " tokens (skip + 2), found ", texts[i].size()));
    }
  }
  return Status::Ok();
}

// One measurement: the engines, and the chunk that they all are at.
class Measurement {
 public:
  Measurement(const std::vector<std::vector<Token>>& texts, const FidelityOptions& options,
              const FidelityProgress& progress)
      : texts_(texts), options_(options), progress_(progress) {}

  Status Make(const std::shared_ptr<const Model>& model,
              const std::vector<FidelityPolicy>& policies) {
    int64_t longest = 0;
    for (const auto& text : texts_) longest = std::max<int64_t>(longest, text.size());
    const CacheShape shape{options_.chunk, options_.n_threads, options_.chunk};
    KVBOUND_ASSIGN_OR_RETURN(uncut_, MakeUncut(model, static_cast<int32_t>(longest), shape));
    for (const FidelityPolicy& policy : policies) {
      KVBOUND_ASSIGN_OR_RETURN(Contender contender, MakeContender(model, policy, shape));
      bounded_.push_back(std::move(contender));
      results_.push_back({});
      results_.back().label = policy.label;
    }
    for (const auto& text : texts_) total_ += text.size() * (1 + bounded_.size());
    n_vocab_ = model->info().n_vocab;
    weights_.resize(static_cast<size_t>(options_.chunk) * n_vocab_);
    rows_.resize(options_.chunk);
    return Status::Ok();
  }

  Status Run() {
    for (size_t i = 0; i < texts_.size(); ++i) {
      KVBOUND_RETURN_IF_ERROR(uncut_.session->Reset());
      for (Contender& contender : bounded_) KVBOUND_RETURN_IF_ERROR(contender.session->Reset());
      for (FidelityResult& result : results_) result.texts.emplace_back();
      if (Status status = RunText(texts_[i]); !status.ok()) {
        return Status(status.code(), StrCat("text ", i, ": ", status.message()));
      }
    }
    return Status::Ok();
  }

  std::vector<FidelityResult> TakeResults() { return std::move(results_); }

 private:
  Status RunText(std::span<const Token> text) {
    for (int64_t begin = 0; begin < std::ssize(text); begin += options_.chunk) {
      const std::span<const Token> chunk =
          text.subspan(begin, std::min<int64_t>(options_.chunk, std::ssize(text) - begin));
      // The last row predicts the chunk's last token's successor, which must be in the text.
      first_row_ = std::max<int64_t>(0, options_.skip - begin);
      end_row_ = std::min<int64_t>(std::ssize(chunk), std::ssize(text) - 1 - begin);
      targets_ = text.subspan(begin + 1);
      KVBOUND_RETURN_IF_ERROR(ReadUncut(chunk));
      for (size_t p = 0; p < bounded_.size(); ++p) KVBOUND_RETURN_IF_ERROR(ReadBounded(p, chunk));
    }
    for (size_t p = 0; p < bounded_.size(); ++p) EndText(p);
    return Status::Ok();
  }

  Status Feed(Contender& contender, std::span<const Token> chunk) {
    KVBOUND_RETURN_IF_ERROR(first_row_ < end_row_ ? contender.session->FeedWithLogits(chunk)
                                                  : contender.session->Feed(chunk));
    done_ += chunk.size();
    if (progress_ && !progress_(done_, total_)) {
      return Cancelled(StrCat("stopped after ", done_, " of ", total_, " tokens"));
    }
    return Status::Ok();
  }

  Status ReadUncut(std::span<const Token> chunk) {
    KVBOUND_RETURN_IF_ERROR(Feed(uncut_, chunk));
    for (int64_t r = first_row_; r < end_row_; ++r) rows_[r] = SumUp(Logits(uncut_, r), Weights(r));
    return Status::Ok();
  }

  Status ReadBounded(size_t p, std::span<const Token> chunk) {
    KVBOUND_RETURN_IF_ERROR(Feed(bounded_[p], chunk));
    TextFidelity& sums = results_[p].texts.back();
    for (int64_t r = first_row_; r < end_row_; ++r) {
      const std::span<const float> full = Logits(uncut_, r);
      const std::span<const float> logits = Logits(bounded_[p], r);
      const LogitRow row = SumUp(logits);
      const double kl = Divergence(full, Weights(r), rows_[r], logits, row);
      if (!std::isfinite(kl)) {
        return Internal(StrCat(results_[p].label, ": logits that are no finite numbers"));
      }
      sums.kl += kl;
      sums.nll += row.log_sum - logits[targets_[r]];
      sums.full_nll += rows_[r].log_sum - full[targets_[r]];
      sums.top1 += row.top == rows_[r].top ? 1 : 0;
      ++sums.n_token;
    }
    return Status::Ok();
  }

  // Sums become means.
  void EndText(size_t p) {
    FidelityResult& result = results_[p];
    TextFidelity& text = result.texts.back();
    for (double* value : {&text.kl, &text.nll, &text.full_nll, &text.top1}) {
      *value /= static_cast<double>(text.n_token);
    }
    const SessionStats& stats = bounded_[p].session->stats();
    result.tokens_kept = stats.tokens_kept;
    result.n_cut += stats.cuts;
    result.seconds += stats.prompt_seconds + stats.scoring_seconds;
  }

  std::span<const float> Logits(Contender& contender, int64_t row) const {
    return contender.session->AllLogits().subspan(row * n_vocab_, n_vocab_);
  }
  std::span<float> Weights(int64_t row) {
    return std::span(weights_).subspan(row * n_vocab_, n_vocab_);
  }

  const std::vector<std::vector<Token>>& texts_;
  const FidelityOptions options_;
  const FidelityProgress& progress_;
  Contender uncut_;
  std::vector<Contender> bounded_;
  std::vector<FidelityResult> results_;
  int64_t n_vocab_ = 0;
  int64_t done_ = 0;
  int64_t total_ = 0;
  // Of the chunk at hand: its measured rows [first_row_, end_row_), each row's next token, and
  // what SumUp made of the uncut rows.
  int64_t first_row_ = 0;
  int64_t end_row_ = 0;
  std::span<const Token> targets_;
  std::vector<float> weights_;  // [chunk, n_vocab]
  std::vector<LogitRow> rows_;  // [chunk]
};

}  // namespace

double FidelityResult::kl() const { return Mean(texts, &TextFidelity::kl); }
double FidelityResult::nll() const { return Mean(texts, &TextFidelity::nll); }
double FidelityResult::full_nll() const { return Mean(texts, &TextFidelity::full_nll); }
double FidelityResult::delta_nll() const { return nll() - full_nll(); }
double FidelityResult::top1() const { return Mean(texts, &TextFidelity::top1); }

Result<std::vector<FidelityResult>> MeasureFidelity(std::shared_ptr<const Model> model,
                                                    const std::vector<std::vector<Token>>& texts,
                                                    const std::vector<FidelityPolicy>& policies,
                                                    const FidelityOptions& options,
                                                    const FidelityProgress& progress) {
  KVBOUND_RETURN_IF_ERROR(CheckInput(texts, policies, options));
  Measurement measurement(texts, options, progress);
  KVBOUND_RETURN_IF_ERROR(measurement.Make(model, policies));
  KVBOUND_RETURN_IF_ERROR(measurement.Run());
  return measurement.TakeResults();
}

}  // namespace kvbound::eval
