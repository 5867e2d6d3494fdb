#include "model/rope.h"

#include <algorithm>
#include <cmath>

#include "ggml-backend.h"

namespace kvbound {

KeyRotation RotationOf(const LoadedModel& model) {
  const RopeParams& r = model.hparams().rope;
  std::vector<float> factors(r.n_rot / 2, 1.0f);
  if (const ggml_tensor* given = model.weights().rope_freqs) {
    ggml_backend_tensor_get(given, factors.data(), 0, factors.size() * sizeof(float));
  }
  float range[2] = {0, 0};  // pairs over which YaRN goes from extrapolation to interpolation
  ggml_rope_yarn_corr_dims(r.n_rot, r.orig_ctx, r.freq_base, r.beta_fast, r.beta_slow, range);
  // ggml multiplies by this float from pair to pair.
  const double ratio = std::pow(r.freq_base, -2.0f / static_cast<float>(r.n_rot));

  KeyRotation rotation;
  rotation.neox = r.neox;
  for (int32_t j = 0; j < r.n_rot / 2; ++j) {
    const double extrapolated = std::pow(ratio, j) / factors[j];
    const float along = (static_cast<float>(j) - range[0]) / std::max(0.001f, range[1] - range[0]);
    const double mix = r.ext_factor * (1.0f - std::clamp(along, 0.0f, 1.0f));
    rotation.frequencies.push_back(extrapolated * (r.freq_scale() * (1.0 - mix) + mix));
  }
  return rotation;
}

}  // namespace kvbound
