/* Ranks of a team: data, memory, operations. */
#include "ring_member.h"
#include "command.h"
#include "reference.h"

#include <stdlib.h>
#include <string.h>

/* ---- data -------------------------------------------------------------------------------------------------------- */

static bool wanted(const struct ring_setup *setup, int which) {
    return which <= LSE || setup->backward;
}

bool ring_of_keys(int which) {
    return which == K || which == V || which == DK || which == DV;
}

/* Element `index` of a tensor's whole: multiples of 1/64, which all dtypes hold. */
static double value_of(const struct ring_setup *setup, int which, uint64_t index) {
    uint64_t x = (index + 1) * UINT64_C(0x9e3779b97f4a7c15) + (setup->seed * TENSORS + (uint64_t)which) * 0x632be5ab;
    x = (x ^ (x >> 31)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (which == Q ? 4.0 : 1.0) * ((double)(x >> 57) - 64) / 64;
}

static void fill(const struct ring_setup *setup, int which, uint64_t first, int64_t count, unsigned char *typed) {
    for (int64_t i = 0; i < count; i++)
        reference_encode(setup->dtype, typed, i, value_of(setup, which, first + (uint64_t)i));
}

int ring_for_pieces(struct team *team, struct member *member, int which, piece_action action, void *user) {
    const clattn_tensor *tensor = &member->tensors[which];
    const int64_t columns = tensor->dims[3], rows = tensor->dims[2], slabs = tensor->dims[0] * tensor->dims[1];
    for (int64_t slab = 0; slab < slabs; slab++) {
        int64_t local = slab * rows;
        for (int p = 0; p < 2; p++) {
            const clattn_ring_piece *piece = &member->q_shard.pieces[p];
            const int64_t whole = slab * team->setup->length + piece->first;
            if (piece->rows > 0)
                FORWARD(action(team, member, which, (uint64_t)(whole * columns), (uint64_t)(local * columns),
                               piece->rows * columns, user));
            local += piece->rows;
        }
    }
    return EXIT_OK;
}

static int upload_piece(struct team *team, struct member *member, int which, uint64_t whole, uint64_t local,
                        int64_t count, void *user) {
    const size_t element = clattn_dtype_size(team->setup->dtype);
    fill(team->setup, which, whole, count, user);
    const cl_int error = clEnqueueWriteBuffer(member->machine.queue, member->tensors[which].memory.as.buffer, CL_TRUE,
                                              local * element, (size_t)count * element, user, 0, NULL, NULL);
    return error == CL_SUCCESS ? EXIT_OK : complain(EXIT_UNSUPPORTED, "upload: OpenCL error %d", error);
}

size_t ring_whole_count(const struct ring_setup *setup, int which) {
    return (size_t)(setup->batch * (ring_of_keys(which) ? setup->kv_heads : setup->heads) * setup->length * setup->dim);
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

static int add_tensor(struct team *team, struct member *member, int which) {
    const struct ring_setup *setup = team->setup;
    const int64_t dims[4] = {setup->batch, ring_of_keys(which) ? setup->kv_heads : setup->heads,
                             clattn_ring_shard_rows(&member->q_shard), setup->dim};
    const clattn_dtype dtype = which == LSE ? CLATTN_F32 : setup->dtype;
    const int64_t count = dims[0] * dims[1] * dims[2] * (which == LSE ? 1 : dims[3]);
    const size_t bytes = (size_t)count * clattn_dtype_size(dtype);
    const cl_mem buffer = machine_buffer(&member->machine, bytes > 0 ? bytes : 4);
    member->tensors[which] = clattn_tensor_dense(buffer, dtype, which == LSE ? 3 : 4, dims);
    member->bytes += bytes;
    if (!buffer)
        return complain(EXIT_UNSUPPORTED, "out of device memory");
    if (which != Q && which != K && which != V && which != DOUT)
        return EXIT_OK;
    unsigned char *typed = malloc((size_t)(setup->length * setup->dim) * sizeof(float));
    const int code = typed ? ring_for_pieces(team, member, which, upload_piece, typed)
                           : complain(EXIT_UNSUPPORTED, "out of host memory");
    free(typed);
    return code;
}

static void make_operations(struct team *team, struct member *member) {
    const clattn_tensor *t = member->tensors;
    clattn_attention_op *plain = &member->plain;
    clattn_attention_init(plain);
    plain->q = t[Q], plain->k = t[K], plain->v = t[V], plain->o = t[O], plain->lse = t[LSE];
    plain->causal = team->setup->causal ? CLATTN_CAUSAL_TOP_LEFT : CLATTN_CAUSAL_NONE;
    clattn_attention_backward_init(&member->plain_backward);
    member->plain_backward.attention = *plain;
    member->plain_backward.dout = t[DOUT];
    member->plain_backward.dq = t[DQ], member->plain_backward.dk = t[DK], member->plain_backward.dv = t[DV];
    clattn_ring_attention_init(&member->ring);
    member->ring.attention = *plain;
    member->ring.q_shard = member->q_shard;
    member->ring.k_shards = team->shards;
    clattn_ring_attention_backward_init(&member->ring_backward);
    member->ring_backward.backward = member->plain_backward;
    member->ring_backward.q_shard = member->q_shard;
    member->ring_backward.k_shards = team->shards;
}

/* ---- a transport that moves nothing ------------------------------------------------------------------------------ */

static clattn_status silent_begin(void *user, const clattn_ring_message *message, void **request) {
    (void)user, (void)message, (void)request;
    return CLATTN_SUCCESS;
}

static clattn_status silent_wait(void *user, void *request) {
    (void)user, (void)request;
    return CLATTN_SUCCESS;
}

static clattn_status silent_max(void *user, uint64_t *values, int32_t count) {
    (void)user, (void)values, (void)count;
    return CLATTN_SUCCESS;
}

static clattn_status silent_share(void *user, const void *mine, const void **all) {
    const struct member *member = user;
    for (int i = 0; i < member->silent.ranks; i++)
        all[i] = mine;
    return CLATTN_SUCCESS;
}

/* ---- staging ----------------------------------------------------------------------------------------------------- */

int ring_member_memory(struct member *member, size_t device_bytes, size_t host_bytes) {
    cl_int error = CL_SUCCESS;
    member->bytes += device_bytes;
    if (device_bytes > 0)
        member->workspace = machine_buffer(&member->machine, device_bytes);
    if (host_bytes > 0) {
        member->pinned = clCreateBuffer(member->machine.context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, host_bytes,
                                        NULL, &error);
        if (error == CL_SUCCESS)
            member->host = clEnqueueMapBuffer(member->machine.queue, member->pinned, CL_TRUE,
                                              CL_MAP_READ | CL_MAP_WRITE, 0, host_bytes, 0, NULL, NULL, &error);
        if (error == CL_SUCCESS)
            memset(member->host, 0, host_bytes);
    }
    if (error != CL_SUCCESS || (device_bytes > 0 && !member->workspace))
        return complain(EXIT_UNSUPPORTED, "out of memory for staging");
    member->launch.workspace = (clattn_workspace){.buffer = member->workspace, .size = device_bytes};
    member->ring_launch.workspace = member->launch.workspace;
    member->ring_launch.host = member->host;
    member->ring_launch.host_size = host_bytes;
    return EXIT_OK;
}

static int give_staging(struct team *team, struct member *member) {
    const bool backward = team->setup->backward;
    const clattn_op *const plain[] = {&member->plain.head, &member->plain_backward.head};
    const clattn_op *const ring[] = {&member->ring.head, &member->ring_backward.head};
    size_t device_bytes = 0, host_bytes = 0;
    for (int i = 0; i <= (backward ? 1 : 0); i++) {
        size_t device = 0, host = 0;
        const clattn_status status =
            team->ranks == 0
                ? clattn_workspace_size(member->machine.clattn, plain[i], &member->launch, &device)
                : clattn_ring_staging(member->machine.clattn, ring[i], &member->ring_launch, &device, &host);
        if (status != CLATTN_SUCCESS)
            return complain_status(status, "staging");
        device_bytes = device > device_bytes ? device : device_bytes;
        host_bytes = host > host_bytes ? host : host_bytes;
    }
    /* shared memory holds this rank's block alone */
    member->block_bytes = backward || team->ranks == 0 ? host_bytes / 2 : host_bytes;
    return ring_member_memory(member, device_bytes, host_bytes);
}

int ring_member_open(struct team *team, int rank) {
    const struct ring_setup *setup = team->setup;
    struct member *member = &team->members[rank];
    cl_int error;
    FORWARD(machine_open_entry(&setup->devices[(size_t)rank % setup->device_count], &member->machine));
    member->q_shard = team->shards[rank];
    for (int which = 0; which < TENSORS; which++)
        if (wanted(setup, which))
            FORWARD(add_tensor(team, member, which));
    make_operations(team, member);
    member->copy_queue = clCreateCommandQueue(member->machine.context, member->machine.entry.device, 0, &error);
    if (error != CL_SUCCESS)
        return complain(EXIT_UNSUPPORTED, "no queue (OpenCL error %d)", error);
    if (team->group && clattn_ring_group_transport(team->group, rank, &member->transport) != CLATTN_SUCCESS)
        return complain_status(CLATTN_INTERNAL_ERROR, "transport");
    member->silent = (clattn_ring_transport){.size = sizeof member->silent,
                                             .rank = rank,
                                             .ranks = team->count,
                                             .begin = silent_begin,
                                             .wait = silent_wait,
                                             .user = member,
                                             .max = silent_max,
                                             .share = silent_share};
    clattn_launch_init(&member->launch, member->machine.queue);
    clattn_ring_launch_init(&member->ring_launch, member->machine.queue,
                            setup->one_queue ? member->machine.queue : member->copy_queue, &member->transport);
    return give_staging(team, member);
}

void ring_member_close(struct member *member) {
    for (int i = 0; i < TENSORS; i++)
        if (member->tensors[i].memory.as.buffer)
            clReleaseMemObject(member->tensors[i].memory.as.buffer);
    if (member->host) {
        clEnqueueUnmapMemObject(member->machine.queue, member->pinned, member->host, 0, NULL, NULL);
        clFinish(member->machine.queue);
    }
    if (member->pinned)
        clReleaseMemObject(member->pinned);
    if (member->workspace)
        clReleaseMemObject(member->workspace);
    if (member->copy_queue)
        clReleaseCommandQueue(member->copy_queue);
    machine_close(&member->machine);
}
