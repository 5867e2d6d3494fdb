# Warnings for our own targets; errors only where KVBOUND_WERROR asks for it (CI).
function(kvbound_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra)
  if(KVBOUND_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
