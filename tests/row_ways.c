/* See row_ways.h. */
#include "row_ways.h"

#include <stdlib.h>
#include <string.h>

static const struct row_way all_ways[] = {
    {NULL, NULL},
    {"subgroup", NULL},
    {"group", NULL},
    {"online", NULL},
    {"subgroup", "team=8,group=32,vector=1"},
    {"group", "group=64,vector=4"},
    {"online", "team=64,group=64"},
};

static bool accepts(const clattn_op *op, struct row_way way) {
    clattn_launch launch;
    clattn_launch_init(&launch, device.queue);
    launch.variant = way.variant;
    launch.parameters = way.parameters;
    const clattn_status status = clattn_supported(device.clattn, op, &launch);
    if (status != CLATTN_UNSUPPORTED)
        CHECK(status);
    return status == CLATTN_SUCCESS;
}

bool row_next_way(const clattn_op *op, enum row_ways ways, size_t *index, struct row_way *way) {
    const size_t count = ways == ROWS_CHOSEN ? 1 : ways == ROWS_VARIANTS ? 4 : sizeof all_ways / sizeof all_ways[0];
    size_t most = 0;
    CHECK_CL(clGetDeviceInfo(device.id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof most, &most, NULL));
    while (*index < count) {
        *way = all_ways[(*index)++];
        if (way->parameters != NULL && most < 64)
            continue;
        if (accepts(op, *way))
            return true;
    }
    return false;
}

static cl_mem full_of_nan(size_t bytes) {
    cl_int code = CL_SUCCESS;
    unsigned char *image = malloc(bytes);
    assert_non_null(image);
    memset(image, 0xff, bytes);
    cl_mem buffer = clCreateBuffer(device.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, image, &code);
    support_expect_cl(code, "clCreateBuffer of the workspace");
    free(image);
    return buffer;
}

void row_call(const clattn_op *op, struct row_way way) {
    clattn_launch launch;
    size_t bytes = 0;
    clattn_launch_init(&launch, device.queue);
    launch.variant = way.variant;
    launch.parameters = way.parameters;
    CHECK(clattn_workspace_size(device.clattn, op, &launch, &bytes));
    if (bytes > 0) {
        launch.workspace.buffer = full_of_nan(bytes);
        launch.workspace.size = bytes;
    }
    CHECK(test_dispatch(device.clattn, op, &launch));
    CHECK_CL(clFinish(device.queue));
    if (bytes > 0)
        clReleaseMemObject(launch.workspace.buffer);
}
