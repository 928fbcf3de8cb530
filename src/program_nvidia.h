/* Instructions that NVIDIA's OpenCL compiler does not let through. It gives PTX text as a program's binary, for a plain
 * architecture, while some instructions exist only on the architecture's own target (sm_90a). Kernels write them behind
 * a mark that makes them comments; here the marks are taken out of the text and its target is raised, and the driver
 * assembles the result as it assembles any binary. */
#ifndef CLATTN_PROGRAM_NVIDIA_H
#define CLATTN_PROGRAM_NVIDIA_H

#include <clattn/clattn.h>
#include <stdbool.h>

/* The option by which a program asks for it; the mark is defined in cl/tile/nvidia_wgmma.clh. */
#define PROGRAM_NVIDIA_OPTION "-DRETARGET"

bool program_nvidia_is_wanted(const char *options);

/* The raised text in malloc'd memory. CLATTN_BUILD_FAILED, with the reason, where the binary is not what is expected:
 * text that opens as PTX, names the target sm_90 once and holds a mark. */
clattn_status program_nvidia_retarget(const unsigned char *binary, size_t size, unsigned char **text,
                                      size_t *text_size);

#endif
