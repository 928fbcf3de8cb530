/* Programs and launches of softmax. */
#include "softmax_launch.h"
#include "context.h"
#include "status.h"
#include <stdio.h>
#include <string.h>

/* The kernels of a schedule, in order. */
struct step {
    const char *file, *kernel;
};

static const struct step registers = {"softmax.cl", "softmax_registers"},
                         online = {"softmax_loop.cl", "softmax_online"},
                         three_pass = {"softmax_loop.cl", "softmax_three_pass"},
                         partial = {"softmax_split.cl", "softmax_partial"},
                         finish = {"softmax_split.cl", "softmax_finish"},
                         tickets = {"softmax_tickets.cl", "softmax_tickets"},
                         held = {"softmax_held.cl", "softmax_held"}, clear = {"grid_clear.cl", "grid_clear"};

static const struct step *step_of(enum schedule schedule, int number) {
    switch (schedule) {
    case SCHEDULE_ONLINE:
        return &online;
    case SCHEDULE_THREE_PASS:
        return &three_pass;
    case SCHEDULE_SPLIT:
        return number == 0 ? &partial : &finish;
    case SCHEDULE_TICKETS:
        return number == 0 ? &clear : &tickets;
    case SCHEDULE_HELD:
        return number == 0 ? &clear : &held;
    default:
        return &registers;
    }
}

/* A work-group draws a ticket that says which chunk of which row it takes. */
static bool draws_tickets(const struct softmax_job *job) {
    return job->schedule == SCHEDULE_TICKETS || job->schedule == SCHEDULE_HELD;
}

int softmax_job_steps(const struct softmax_job *job) {
    return job->schedule == SCHEDULE_SPLIT || draws_tickets(job) ? 2 : 1;
}

/* Everything that the program's text depends on. */
struct kind {
    const struct step *step;
    uint64_t caps;
    int32_t x_dtype, y_dtype, function, empty_zero, scores, scaled, mask, bias_dtype, outer, dense;
    struct softmax_plan plan; /* without the cut */
};

/* One program for all that a step does not look at: states of chunks are the same for every function. */
static void drop_unread(struct kind *kind) {
    if (kind->step == &partial) {
        kind->function = kind->empty_zero = 0;
        kind->y_dtype = CLATTN_F32;
    }
    if (kind->function == CLATTN_LOG_SUM_EXP || kind->function == CLATTN_SOFTMAX_STATE)
        kind->empty_zero = 0;
}

static struct kind kind_of(const struct softmax_job *job, int number) {
    struct kind kind;
    memset(&kind, 0, sizeof kind); /* padding too: it is compared byte by byte */
    kind.step = step_of(job->schedule, number);
    kind.caps = job->facts->caps;
    kind.x_dtype = (int32_t)job->rows.x_dtype;
    kind.y_dtype = (int32_t)job->rows.y_dtype;
    kind.function = (int32_t)job->function;
    kind.empty_zero = job->empty_zero;
    kind.scores = job->scores;
    kind.scaled = job->scaled;
    kind.mask = job->mask != NULL;
    kind.bias_dtype = job->bias != NULL ? (int32_t)job->bias_dtype : 0;
    kind.outer = job->rows.outer;
    kind.dense = job->rows.dense;
    memcpy(&kind.plan, &job->plan, sizeof kind.plan);
    kind.plan.chunk = kind.plan.splits = kind.plan.lag = kind.plan.patience = 0;
    drop_unread(&kind);
    return kind;
}

static clattn_status build(clattn_context *context, const struct kind *kind, struct program **program) {
    const struct softmax_plan *plan = &kind->plan;
    char options[640], limit[48] = "";
    if (plan->registers > 0)
        snprintf(limit, sizeof limit, " -cl-nv-maxrregcount=%d", plan->registers);
    snprintf(options, sizeof options,
             "-DSUBGROUP_BACKEND=%s -DX_DTYPE=%d -DY_DTYPE=%d -DFUNCTION=%d -DEMPTY_ZERO=%d -DSCORES=%d -DSCALED=%d "
             "-DMASK=%d -DBIAS_DTYPE=%d -DOUTER=%d "
             "-DDENSE=%d -DALIGNED=%d -DVECTOR=%d -DPARTIAL=%d -DPACKETS=%d -DUNROLLED=%d -DSG_SIZE=%d -DTEAM=%d "
             "-DGROUP=%d -DPACKED=%d -DLOCAL_PACKETS=%d%s%s",
             device_subgroup_name(plan->backend), kind->x_dtype, kind->y_dtype, kind->function, kind->empty_zero,
             kind->scores, kind->scaled, kind->mask, kind->bias_dtype, kind->outer, kind->dense, plan->aligned,
             plan->vector, plan->partial, plan->packets, plan->unrolled, plan->subgroup, plan->team, plan->group,
             plan->packed, plan->local_packets, (kind->caps & CAP_BIT(CAP_HALF_TYPE)) != 0 ? " -DHALF_TYPE" : "",
             limit);
    const struct program_key key = {kind->step->file, kind->step->kernel, kind->step == &clear ? "" : options};
    return program_get(context, &key, program);
}

clattn_status softmax_job_program(clattn_context *context, const struct softmax_job *job, int number,
                                  struct program **program) {
    const struct kind kind = kind_of(job, number);
    if (memo_find(&context->memo, &kind, sizeof kind, program, sizeof *program))
        return CLATTN_SUCCESS;
    FORWARD(build(context, &kind, program));
    memo_keep(&context->memo, &kind, sizeof kind, program, sizeof *program);
    return CLATTN_SUCCESS;
}

static int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* State of a chunk: its maximum and its sum. */
#define STATE_BYTES (2 * sizeof(float))
/* The tickets' counter, in front of the states. */
#define TICKET_BYTES (2 * STATE_BYTES)
#define CLEAR_GROUP 64

size_t softmax_job_workspace(const struct softmax_job *job) {
    if (job->schedule != SCHEDULE_SPLIT && !draws_tickets(job))
        return 0;
    const size_t states = (size_t)(job->rows.layout.rows * job->plan.splits) * STATE_BYTES;
    return draws_tickets(job) ? TICKET_BYTES + states : states;
}

static clattn_status enqueue_rows(const struct softmax_job *job, struct program *program, struct sequence *sequence) {
    const size_t groups = (size_t)divide_up(job->rows.layout.rows, job->plan.group / job->plan.team);
    const size_t local = (size_t)job->plan.group;
    struct launch launch;
    launch_begin(&launch, program);
    launch_buffer(&launch, job->x);
    launch_buffer(&launch, job->mask);
    launch_buffer(&launch, job->bias);
    launch_buffer(&launch, job->y);
    launch_buffer(&launch, job->l);
    launch_struct(&launch, &job->rows.layout, sizeof job->rows.layout);
    return launch_enqueue(&launch, sequence, 1, &groups, &local);
}

/* The workspace's offset is a multiple of 256 bytes, so it is one of states too. */
static clattn_status enqueue_partial(const struct softmax_job *job, const clattn_workspace *workspace,
                                     struct program *program, struct sequence *sequence) {
    const size_t groups = (size_t)(job->rows.layout.rows * job->plan.splits);
    const size_t local = (size_t)job->plan.group;
    struct launch launch;
    launch_begin(&launch, program);
    launch_buffer(&launch, job->x);
    launch_buffer(&launch, job->mask);
    launch_buffer(&launch, job->bias);
    launch_buffer(&launch, workspace->buffer);
    launch_long(&launch, (int64_t)(workspace->offset / STATE_BYTES));
    launch_struct(&launch, &job->rows.layout, sizeof job->rows.layout);
    launch_int(&launch, (int32_t)job->plan.chunk);
    launch_int(&launch, (int32_t)job->plan.splits);
    return launch_enqueue(&launch, sequence, 1, &groups, &local);
}

static clattn_status enqueue_finish(const struct softmax_job *job, const clattn_workspace *workspace,
                                    struct program *program, struct sequence *sequence) {
    const bool writes_row = job->function == CLATTN_SOFTMAX || job->function == CLATTN_LOG_SOFTMAX;
    const size_t groups = (size_t)(job->rows.layout.rows * (writes_row ? job->plan.splits : 1));
    const size_t local = (size_t)job->plan.group;
    struct launch launch;
    launch_begin(&launch, program);
    launch_buffer(&launch, job->x);
    launch_buffer(&launch, job->mask);
    launch_buffer(&launch, job->bias);
    launch_buffer(&launch, job->y);
    launch_buffer(&launch, job->l);
    launch_buffer(&launch, workspace->buffer);
    launch_long(&launch, (int64_t)(workspace->offset / STATE_BYTES));
    launch_struct(&launch, &job->rows.layout, sizeof job->rows.layout);
    launch_int(&launch, (int32_t)job->plan.chunk);
    launch_int(&launch, (int32_t)job->plan.splits);
    return launch_enqueue(&launch, sequence, 1, &groups, &local);
}

/* Counter and states start as zeros. */
static clattn_status enqueue_clear(const struct softmax_job *job, const clattn_workspace *workspace,
                                   struct program *program, struct sequence *sequence) {
    const int64_t words = (int64_t)(softmax_job_workspace(job) / STATE_BYTES);
    const size_t local = job->facts->max_group < CLEAR_GROUP ? 1 : CLEAR_GROUP;
    const size_t groups = (size_t)divide_up(words, (int64_t)local);
    struct launch launch;
    launch_begin(&launch, program);
    launch_buffer(&launch, workspace->buffer);
    launch_long(&launch, (int64_t)(workspace->offset / STATE_BYTES));
    launch_long(&launch, words);
    return launch_enqueue(&launch, sequence, 1, &groups, &local);
}

static clattn_status enqueue_tickets(const struct softmax_job *job, const clattn_workspace *workspace,
                                     struct program *const *program, struct sequence *sequence) {
    const bool is_held = job->schedule == SCHEDULE_HELD;
    const size_t groups = (size_t)((is_held ? 1 : 2) * job->rows.layout.rows * job->plan.splits);
    const size_t local = (size_t)job->plan.group;
    struct launch launch;
    FORWARD(enqueue_clear(job, workspace, program[0], sequence));
    launch_begin(&launch, program[1]);
    launch_buffer(&launch, job->x);
    launch_buffer(&launch, job->mask);
    launch_buffer(&launch, job->bias);
    launch_buffer(&launch, job->y);
    launch_buffer(&launch, workspace->buffer);
    launch_long(&launch, (int64_t)(workspace->offset / STATE_BYTES));
    launch_struct(&launch, &job->rows.layout, sizeof job->rows.layout);
    launch_int(&launch, (int32_t)job->plan.chunk);
    launch_int(&launch, (int32_t)job->plan.splits);
    launch_int(&launch, is_held ? job->plan.patience : (int32_t)job->plan.lag);
    return launch_enqueue(&launch, sequence, 1, &groups, &local);
}

clattn_status softmax_job_enqueue(const struct softmax_job *job, const clattn_workspace *workspace,
                                  struct sequence *sequence) {
    struct program *program[2] = {NULL, NULL};
    for (int i = 0; i < softmax_job_steps(job); i++)
        FORWARD(softmax_job_program(sequence->context, job, i, &program[i]));
    if (draws_tickets(job))
        return enqueue_tickets(job, workspace, program, sequence);
    if (job->schedule != SCHEDULE_SPLIT)
        return enqueue_rows(job, program[0], sequence);
    FORWARD(enqueue_partial(job, workspace, program[0], sequence));
    return enqueue_finish(job, workspace, program[1], sequence);
}
