/* CPUs, whoever made them: one work-item per tile pays there. PoCL puts its threading driver and LLVM's name of the
 * core before the processor's own name ("pthread-skylake-avx512-Intel(R) Xeon(R) ..."), or gives those alone. */
#include "device.h"

#include <stdio.h>
#include <string.h>

static void drop_prefix(char *name, const char *prefix) {
    const size_t length = strlen(prefix);
    if (strncmp(name, prefix, length) == 0 && name[length] != '\0')
        memmove(name, name + length, strlen(name + length) + 1);
}

void device_cpu(cl_device_id device, struct device_facts *facts) {
    (void)device;
    if (!facts->is_cpu)
        return;
    facts->caps |= CAP_BIT(CAP_CPU);
    snprintf(facts->architecture, sizeof facts->architecture, "cpu");
    drop_prefix(facts->name, "pthread-");
    drop_prefix(facts->name, "basic-");
    drop_prefix(facts->name, "cpu-");
    device_strip(facts->name, "(R)");
    device_strip(facts->name, "(TM)");
}
