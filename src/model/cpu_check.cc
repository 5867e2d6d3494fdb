#include "model/cpu_check.h"

#include <cstdint>

#include "base/strings.h"
#include "ggml-cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace kvbound {

#if defined(__x86_64__)
namespace {

enum Register { kEax, kEbx, kEcx, kEdx };

// Register state that the operating system has to save (bits of XCR0).
constexpr uint64_t kNone = 0;
constexpr uint64_t kYmm = 0x6;
constexpr uint64_t kZmm = 0xE6;
constexpr uint64_t kTile = 0x60000;

struct Feature {
  const char* name;
  int (*built_for)();
  uint32_t leaf;
  uint32_t subleaf;
  Register reg;
  int bit;
  uint64_t state;
};

constexpr Feature kFeatures[] = {
    {"SSE3", ggml_cpu_has_sse3, 1, 0, kEcx, 0, kNone},
    {"SSSE3", ggml_cpu_has_ssse3, 1, 0, kEcx, 9, kNone},
    {"AVX", ggml_cpu_has_avx, 1, 0, kEcx, 28, kYmm},
    {"F16C", ggml_cpu_has_f16c, 1, 0, kEcx, 29, kYmm},
    {"FMA", ggml_cpu_has_fma, 1, 0, kEcx, 12, kYmm},
    {"AVX2", ggml_cpu_has_avx2, 7, 0, kEbx, 5, kYmm},
    {"BMI2", ggml_cpu_has_bmi2, 7, 0, kEbx, 8, kNone},
    {"AVX-VNNI", ggml_cpu_has_avx_vnni, 7, 1, kEax, 4, kYmm},
    {"AVX-512F", ggml_cpu_has_avx512, 7, 0, kEbx, 16, kZmm},
    {"AVX-512 VBMI", ggml_cpu_has_avx512_vbmi, 7, 0, kEcx, 1, kZmm},
    {"AVX-512 VNNI", ggml_cpu_has_avx512_vnni, 7, 0, kEcx, 11, kZmm},
    {"AVX-512 BF16", ggml_cpu_has_avx512_bf16, 7, 1, kEax, 5, kZmm},
    {"AMX-INT8", ggml_cpu_has_amx_int8, 7, 0, kEdx, 25, kTile},
};

uint64_t SavedState() {
  uint32_t eax, ebx, ecx, edx;
  constexpr uint32_t kOsxsave = 1u << 27;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & kOsxsave)) return 0;
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

bool CpuHas(const Feature& feature, uint64_t saved_state) {
  uint32_t regs[4];
  if (!__get_cpuid_count(feature.leaf, feature.subleaf, &regs[kEax], &regs[kEbx], &regs[kEcx],
                         &regs[kEdx])) {
    return false;
  }
  return (regs[feature.reg] >> feature.bit & 1) && (saved_state & feature.state) == feature.state;
}

}  // namespace

Status CheckCpuFeatures() {
  const uint64_t saved_state = SavedState();
  for (const Feature& feature : kFeatures) {
    if (feature.built_for() && !CpuHas(feature, saved_state)) {
      return Unsupported(StrCat("this processor lacks ", feature.name,
                                ", which the installed ggml was built for: build ggml on this "
                                "machine"));
    }
  }
  return Status::Ok();
}

#else

Status CheckCpuFeatures() { return Status::Ok(); }

#endif

}  // namespace kvbound
