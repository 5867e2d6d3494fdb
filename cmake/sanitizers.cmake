# Build-wide checks. ggml and llama come as they are installed, without instrumentation, so a
# sanitizer sees our code and the libc calls of theirs.
if(KVBOUND_DCHECK OR KVBOUND_SANITIZE OR KVBOUND_BUILD_FUZZ)
  add_compile_options(-UNDEBUG)
endif()

set(KVBOUND_FLAGS "")
if(KVBOUND_SANITIZE)
  list(APPEND KVBOUND_FLAGS -fsanitize=${KVBOUND_SANITIZE} -fno-omit-frame-pointer)
  if(KVBOUND_SANITIZE MATCHES "undefined")
    list(APPEND KVBOUND_FLAGS -fno-sanitize-recover=undefined)
  endif()
endif()
add_compile_options(${KVBOUND_FLAGS})
add_link_options(${KVBOUND_FLAGS})

if(KVBOUND_BUILD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "KVBOUND_BUILD_FUZZ: expected clang (libFuzzer), found "
                        "${CMAKE_CXX_COMPILER_ID}; use `cmake --preset fuzz`")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Environment of every test. Passive waiting: ggml's threads spin at barriers, and two test
# programs that spin on the same cores slow each other manyfold.
set(KVBOUND_TEST_ENVIRONMENT "OMP_WAIT_POLICY=passive")
if(KVBOUND_SANITIZE MATCHES "thread")
  list(APPEND KVBOUND_TEST_ENVIRONMENT
    "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:ignore_noninstrumented_modules=1:suppressions=${CMAKE_CURRENT_LIST_DIR}/tsan.supp")
elseif(KVBOUND_SANITIZE MATCHES "address")
  list(APPEND KVBOUND_TEST_ENVIRONMENT
    "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1"
    "LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_LIST_DIR}/lsan.supp:print_suppressions=0"
    "UBSAN_OPTIONS=print_stacktrace=1")
endif()
