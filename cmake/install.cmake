# `cmake --install`: library, public headers, program and a package for find_package(kvbound).
# ggml and llama built into .deps are installed beside the library, so that the installed tree
# works on its own and can be moved as a whole.
include(CMakePackageConfigHelpers)

set(KVBOUND_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/kvbound")
set(KVBOUND_BUNDLE_DIR "${CMAKE_INSTALL_LIBDIR}/kvbound")
cmake_path(IS_PREFIX KVBOUND_DEPS_DIR "${ggml_DIR}" NORMALIZE KVBOUND_BUNDLED)

install(TARGETS kvbound EXPORT kvboundTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY include/kvbound "${PROJECT_BINARY_DIR}/include/kvbound"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")
install(EXPORT kvboundTargets NAMESPACE kvbound:: DESTINATION "${KVBOUND_CMAKE_DIR}")

configure_package_config_file(cmake/kvboundConfig.cmake.in
  "${PROJECT_BINARY_DIR}/kvboundConfig.cmake" INSTALL_DESTINATION "${KVBOUND_CMAKE_DIR}"
  PATH_VARS KVBOUND_BUNDLE_DIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/kvboundConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/kvboundConfig.cmake"
              "${PROJECT_BINARY_DIR}/kvboundConfigVersion.cmake"
        DESTINATION "${KVBOUND_CMAKE_DIR}")

if(TARGET kvbound_cli)
  install(TARGETS kvbound_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(FILES LICENSE README.md CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}" OPTIONAL)

if(KVBOUND_BUNDLED)
  install(DIRECTORY "${KVBOUND_DEPS_DIR}/include" "${KVBOUND_DEPS_DIR}/lib"
          DESTINATION "${KVBOUND_BUNDLE_DIR}"
          PATTERN "libllama-common*" EXCLUDE
          PATTERN "pkgconfig" EXCLUDE)
  if(TARGET kvbound_cli)
    file(RELATIVE_PATH KVBOUND_BIN_TO_LIB
      "/${CMAKE_INSTALL_BINDIR}" "/${KVBOUND_BUNDLE_DIR}/lib")
    set_target_properties(kvbound_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${KVBOUND_BIN_TO_LIB}")
  endif()
endif()
