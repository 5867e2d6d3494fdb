#ifndef KVBOUND_CLI_INSPECT_ASSETS_H_
#define KVBOUND_CLI_INSPECT_ASSETS_H_

#include <string_view>

// The files of inspect/, embedded by cmake/embed.cmake.
namespace kvbound::cli {

extern const std::string_view kInspectHtml;
extern const std::string_view kInspectCss;
extern const std::string_view kInspectJs;  // all scripts, one after the other

}  // namespace kvbound::cli

#endif  // KVBOUND_CLI_INSPECT_ASSETS_H_
