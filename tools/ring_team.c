/* A team of ranks: memory, data, threads and times. */
#include "command.h"
#include "ring_member.h"
#include "timer.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"

enum { MOST_RUNS = 64 };

/* ---- comparing --------------------------------------------------------------------------------------------------- */

struct comparison {
    struct ring_results *results;
    struct ring_measured *measured;
    size_t base; /* of the tensor in the results */
    bool keeps;
    unsigned char *typed;
};

static int compare_piece(struct team *team, struct member *member, int which, uint64_t whole, uint64_t local,
                         int64_t count, void *user) {
    struct comparison *c = user;
    const clattn_dtype dtype = member->tensors[which].dtype;
    const size_t element = clattn_dtype_size(dtype);
    const cl_int error = clEnqueueReadBuffer(member->machine.queue, member->tensors[which].memory.as.buffer, CL_TRUE,
                                             local * element, (size_t)count * element, c->typed, 0, NULL, NULL);
    (void)team;
    if (error != CL_SUCCESS)
        return complain(EXIT_UNSUPPORTED, "reading results: OpenCL error %d", error);
    for (int64_t i = 0; i < count; i++) {
        const double got = reference_decode(dtype, c->typed, i);
        float *kept = &c->results->values[c->base + whole + (uint64_t)i];
        if (c->keeps)
            *kept = (float)got;
        const double difference = fabs(got - (double)*kept);
        c->measured->difference = difference <= c->measured->difference ? c->measured->difference : difference;
        c->measured->largest = fmax(c->measured->largest, fabs(got));
    }
    return EXIT_OK;
}

static int compare(struct team *team, struct ring_results *results, struct ring_measured *measured) {
    static const int outputs[] = {O, DQ, DK, DV};
    const struct ring_setup *setup = team->setup;
    const size_t count = setup->backward ? 4 : 1;
    struct comparison c = {.results = results, .measured = measured, .keeps = results->values == NULL};
    for (size_t i = 0; i < count && c.keeps; i++)
        results->count += ring_whole_count(setup, outputs[i]);
    if (c.keeps)
        results->values = malloc(results->count * sizeof *results->values);
    c.typed = malloc((size_t)(setup->length * setup->dim) * sizeof(float));
    int code = results->values && c.typed ? EXIT_OK : complain(EXIT_UNSUPPORTED, "out of host memory");
    for (size_t i = 0; i < count && code == EXIT_OK; i++) {
        for (int m = 0; m < team->count && code == EXIT_OK; m++)
            code = ring_for_pieces(team, &team->members[m], outputs[i], compare_piece, &c);
        c.base += ring_whole_count(setup, outputs[i]);
    }
    free(c.typed);
    return code;
}

static int open_team(struct team *team) {
    if (team->ranks > 0 && clattn_ring_group_create(team->count, 600000, &team->group) != CLATTN_SUCCESS)
        return complain_status(CLATTN_INVALID_ARGUMENT, "ranks");
    for (int i = 0; i < team->count; i++)
        if (clattn_ring_shard_of(team->setup->split, team->setup->length, i, team->count, &team->shards[i]) !=
            CLATTN_SUCCESS)
            return complain_status(CLATTN_INVALID_ARGUMENT, "shards");
    for (int i = 0; i < team->count; i++)
        FORWARD(ring_member_open(team, i));
    return EXIT_OK;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

struct runner {
    struct team *team;
    int rank;
    bool backward;
    int runs;
    pthread_barrier_t *barrier;
    double *samples; /* of rank 0 */
    clattn_status status;
    char text[256];
};

static clattn_status call(const struct runner *runner) {
    struct member *m = &runner->team->members[runner->rank];
    clattn_context *context = m->machine.clattn;
    if (runner->team->ranks == 0)
        return runner->backward ? clattn_attention_backward(context, &m->plain_backward, &m->launch)
                                : clattn_attention(context, &m->plain, &m->launch);
    return runner->backward ? clattn_ring_attention_backward(context, &m->ring_backward, &m->ring_launch)
                            : clattn_ring_attention(context, &m->ring, &m->ring_launch);
}

/* All ranks begin together; a run ends when the last has finished. */
static void *run_rank(void *argument) {
    struct runner *runner = argument;
    for (int i = 0; i < runner->runs; i++) {
        pthread_barrier_wait(runner->barrier);
        const double start = wall_seconds();
        if (runner->status == CLATTN_SUCCESS)
            runner->status = call(runner);
        if (runner->status != CLATTN_SUCCESS && !runner->text[0])
            snprintf(runner->text, sizeof runner->text, "%s", clattn_last_error());
        clFinish(runner->team->members[runner->rank].machine.queue);
        pthread_barrier_wait(runner->barrier);
        if (runner->rank == 0)
            runner->samples[i] = wall_seconds() - start;
    }
    return NULL;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The first run, which compiles, is not counted. */
static int time_team(struct team *team, bool backward, bool silent, int runs, double *median) {
    struct runner runners[RING_TEAM_MOST];
    pthread_t threads[RING_TEAM_MOST];
    pthread_barrier_t barrier;
    double samples[MOST_RUNS + 1];
    int code = EXIT_OK;
    pthread_barrier_init(&barrier, NULL, (unsigned)team->count);
    for (int i = 0; i < team->count; i++) {
        struct member *member = &team->members[i];
        member->ring_launch.transport = silent ? &member->silent : &member->transport;
        runners[i] = (struct runner){
            .team = team, .rank = i, .backward = backward, .runs = runs + 1, .barrier = &barrier, .samples = samples};
        if (pthread_create(&threads[i], NULL, run_rank, &runners[i]) != 0)
            abort(); /* the ranks that have begun would wait for ever */
    }
    for (int i = 0; i < team->count; i++) {
        pthread_join(threads[i], NULL);
        if (runners[i].status != CLATTN_SUCCESS)
            code = complain(EXIT_UNSUPPORTED, "rank %d: %s", i, runners[i].text);
    }
    pthread_barrier_destroy(&barrier);
    qsort(samples + 1, (size_t)runs, sizeof *samples, by_value);
    *median = samples[1 + runs / 2];
    return code;
}

static int measure(struct team *team, struct ring_results *results, struct ring_measured *out) {
    const bool backward = team->setup->backward;
    const int runs = team->setup->runs < MOST_RUNS ? (int)team->setup->runs : MOST_RUNS;
    FORWARD(open_team(team));
    for (int i = 0; i < team->count; i++) {
        out->bytes = team->members[i].bytes > out->bytes ? team->members[i].bytes : out->bytes;
        out->block_bytes =
            team->members[i].block_bytes > out->block_bytes ? team->members[i].block_bytes : out->block_bytes;
    }
    if (backward) /* o and lse */
        FORWARD(time_team(team, false, false, 1, &out->seconds));
    FORWARD(time_team(team, backward, false, runs, &out->seconds));
    FORWARD(compare(team, results, out));
    if (team->ranks > 1)
        FORWARD(time_team(team, backward, true, runs, &out->alone_s));
    else
        out->alone_s = out->seconds;
    return EXIT_OK;
}

int ring_team_measure(const struct ring_setup *setup, int ranks, struct ring_results *results,
                      struct ring_measured *out) {
    struct team *team = calloc(1, sizeof *team);
    if (!team)
        return complain(EXIT_UNSUPPORTED, "out of host memory");
    *out = (struct ring_measured){.seconds = 0};
    team->setup = setup;
    team->ranks = ranks;
    team->count = ranks > 0 ? ranks : 1;
    const int code = measure(team, results, out);
    for (int i = 0; i < team->count; i++)
        ring_member_close(&team->members[i]);
    clattn_ring_group_release(&team->group);
    free(team);
    return code;
}

/* ---- the link ---------------------------------------------------------------------------------------------------- */

/* copies: ranks do not read each other's memory. */
static int time_link(struct member *member, uint64_t bytes, bool copies, double *seconds) {
    char *host = member->host, *other = copies ? host + bytes : host;
    for (int i = 0; i < 4; i++) { /* the first warms up */
        const double start = wall_seconds();
        cl_int error =
            clEnqueueReadBuffer(member->machine.queue, member->workspace, CL_TRUE, 0, bytes, host, 0, NULL, NULL);
        if (copies)
            memcpy(other, host, bytes);
        error |=
            clEnqueueWriteBuffer(member->machine.queue, member->workspace, CL_TRUE, 0, bytes, other, 0, NULL, NULL);
        if (error != CL_SUCCESS)
            return complain(EXIT_UNSUPPORTED, "link: OpenCL error %d", error);
        const double spent = wall_seconds() - start;
        *seconds = i == 1 || (i > 1 && spent < *seconds) ? spent : *seconds;
    }
    return EXIT_OK;
}

int ring_team_link(const struct ring_setup *setup, uint64_t bytes, double *bytes_s) {
    struct member *member = calloc(1, sizeof *member);
    double seconds = 1;
    if (!member)
        return complain(EXIT_UNSUPPORTED, "out of host memory");
    int code = machine_open_entry(&setup->devices[0], &member->machine);
    if (code == EXIT_OK)
        code = ring_member_memory(member, bytes, 2 * bytes);
    if (code == EXIT_OK)
        code = time_link(member, bytes, setup->backward, &seconds);
    *bytes_s = (double)bytes / seconds;
    ring_member_close(member);
    free(member);
    return code;
}
