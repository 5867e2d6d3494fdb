#ifndef KVBOUND_TESTING_EXPECT_REFUSED_H_
#define KVBOUND_TESTING_EXPECT_REFUSED_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvbound/status.h"

namespace kvbound::testing {

// Fails unless `status` is an error whose message contains every one of `words`.
inline void ExpectRefused(const Status& status, const std::vector<std::string>& words) {
  ASSERT_FALSE(status.ok()) << "accepted";
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos)
        << "no '" << word << "' in: " << status.message();
  }
}

}  // namespace kvbound::testing

#endif  // KVBOUND_TESTING_EXPECT_REFUSED_H_
