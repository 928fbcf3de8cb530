/* Counts the device memory of the whole process. The executable's own clCreateBuffer takes the place of the OpenCL
 * library's for every library in the process, so that allocations hidden in a library count too. */
#ifndef TOOLS_MEMORY_COUNTER_H
#define TOOLS_MEMORY_COUNTER_H

#include <stdint.h>

uint64_t memory_now(void);
uint64_t memory_peak(void);

/* Waits a moment for releases that the driver reports late, then the peak starts over from what is held now. */
void memory_restart_peak(void);

#endif
