# Installs the build in BUILD_DIR, moves the installed tree, and builds and runs the consumer
# project against it.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGV}\nended with ${code}:\n${text}")
  endif()
  message("${text}")
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${WORK_DIR}/first")
file(RENAME "${WORK_DIR}/first" "${WORK_DIR}/moved")
run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}" -B "${WORK_DIR}/build" -G Ninja
    -D "CMAKE_PREFIX_PATH=${WORK_DIR}/moved" -D "CMAKE_CXX_COMPILER=${CXX}"
    -D "CMAKE_BUILD_TYPE=${BUILD_TYPE}")
run("${CMAKE_COMMAND}" --build "${WORK_DIR}/build")
run("${WORK_DIR}/build/consumer")
if(EXISTS "${WORK_DIR}/moved/bin/kvbound")
  run("${WORK_DIR}/moved/bin/kvbound" --version)
endif()
file(REMOVE_RECURSE "${WORK_DIR}")
