/* AMD GPUs: the architecture is the device's name ("gfx942:sramecc+:xnack-"), the product's name a query of its own. */
#include "device.h"

#include <stdio.h>
#include <string.h>

enum {
    BOARD_NAME = 0x4038,     /* CL_DEVICE_BOARD_NAME_AMD */
    WAVEFRONT_WIDTH = 0x4043 /* CL_DEVICE_WAVEFRONT_WIDTH_AMD */
};

static void read_architecture(struct device_facts *facts) {
    const char *gfx = strstr(facts->name, "gfx");
    if (gfx != NULL)
        snprintf(facts->architecture, sizeof facts->architecture, "%.*s",
                 (int)strspn(gfx, "abcdefghijklmnopqrstuvwxyz0123456789"), gfx);
}

void device_amd(cl_device_id device, struct device_facts *facts) {
    char board[sizeof facts->name];
    if (!facts->is_gpu || !(strstr(facts->vendor_name, "Advanced Micro Devices") != NULL ||
                            device_has_extension(device, "cl_amd_device_attribute_query")))
        return;
    facts->vendor = VENDOR_AMD;
    read_architecture(facts);
    device_query_uint(device, WAVEFRONT_WIDTH, &facts->subgroup_size);
    if (device_query_text(device, BOARD_NAME, board, sizeof board))
        memcpy(facts->name, board, sizeof board);
    device_strip(facts->name, "AMD ");
    device_strip(facts->name, "(TM)");
}
