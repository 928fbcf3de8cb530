/* Which rows of the sequence a rank holds, and what queries of one shard see of the keys of another. */
#include "ring.h"
#include "status.h"
#include "tensor.h"

#include <inttypes.h>
#include <string.h>

#define MOST_ROWS (INT64_C(1) << 40) /* of a sequence: sums of a few positions fit 64 bits */
#define FAR (INT64_C(1) << 42)       /* beyond any position, also with a diagonal */

/* ---- the public functions ---------------------------------------------------------------------------------------- */

static clattn_ring_piece part_of(int64_t length, int64_t part, int64_t parts) {
    const int64_t rows = length / parts, longer = length % parts;
    return (clattn_ring_piece){.first = part * rows + (part < longer ? part : longer), .rows = rows + (part < longer)};
}

clattn_status clattn_ring_shard_of(clattn_ring_split split, int64_t length, int32_t rank, int32_t ranks,
                                   clattn_ring_shard *shard) {
    RETURN_IF(shard == NULL, CLATTN_INVALID_ARGUMENT, "shard is NULL");
    memset(shard, 0, sizeof *shard);
    RETURN_IF(ranks < 1, CLATTN_INVALID_ARGUMENT, "ranks = %" PRId32 " is not at least 1", ranks);
    RETURN_IF(rank < 0 || rank >= ranks, CLATTN_INVALID_ARGUMENT, "rank = %" PRId32 " is not within 0 .. %" PRId32,
              rank, ranks - 1);
    RETURN_IF(length < 0 || length > MOST_ROWS, CLATTN_INVALID_ARGUMENT, "length = %" PRId64 " is not within 0 .. 2^40",
              length);
    RETURN_IF(split != CLATTN_RING_CONTIGUOUS && split != CLATTN_RING_ZIGZAG, CLATTN_INVALID_ARGUMENT,
              "split: %d is unknown", (int)split);
    if (split == CLATTN_RING_CONTIGUOUS) {
        shard->pieces[0] = part_of(length, rank, ranks);
    } else {
        const int64_t parts = 2 * (int64_t)ranks;
        shard->pieces[0] = part_of(length, rank, parts);
        shard->pieces[1] = part_of(length, parts - 1 - rank, parts);
    }
    return CLATTN_SUCCESS;
}

int64_t clattn_ring_shard_rows(const clattn_ring_shard *shard) {
    return shard != NULL ? shard->pieces[0].rows + shard->pieces[1].rows : 0;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

clattn_status ring_check_shard(const char *name, const clattn_ring_shard *shard) {
    for (int i = 0; i < RING_PIECES; i++) {
        const clattn_ring_piece *piece = &shard->pieces[i];
        RETURN_IF(piece->first < 0 || piece->first > MOST_ROWS, CLATTN_INVALID_ARGUMENT,
                  "%s: pieces[%d].first = %" PRId64 " is not within 0 .. 2^40", name, i, piece->first);
        RETURN_IF(piece->rows < 0 || piece->rows > MOST_ROWS - piece->first, CLATTN_INVALID_ARGUMENT,
                  "%s: pieces[%d].rows = %" PRId64 " is negative, or the piece ends beyond 2^40", name, i, piece->rows);
    }
    return CLATTN_SUCCESS;
}

static bool meet(const clattn_ring_piece *a, const clattn_ring_piece *b) {
    return a->rows > 0 && b->rows > 0 && a->first < b->first + b->rows && b->first < a->first + a->rows;
}

static const clattn_ring_piece *piece_of(const clattn_ring_shard *shards, int64_t i) {
    return &shards[i / RING_PIECES].pieces[i % RING_PIECES];
}

clattn_status ring_check_shards(const clattn_ring_shard *shards, int32_t ranks) {
    RETURN_IF(shards == NULL, CLATTN_INVALID_ARGUMENT, "k_shards is NULL");
    for (int64_t i = 0; i < (int64_t)ranks * RING_PIECES; i++) {
        if (i % RING_PIECES == 0)
            FORWARD(ring_check_shard("k_shards", &shards[i / RING_PIECES]));
        for (int64_t j = 0; j < i; j++)
            RETURN_IF(meet(piece_of(shards, i), piece_of(shards, j)), CLATTN_INVALID_ARGUMENT,
                      "k_shards: row %" PRId64 " has two owners, %" PRId64 " and %" PRId64,
                      piece_of(shards, i)->first > piece_of(shards, j)->first ? piece_of(shards, i)->first
                                                                              : piece_of(shards, j)->first,
                      j / RING_PIECES, i / RING_PIECES);
    }
    return CLATTN_SUCCESS;
}

/* ---- what sees what ---------------------------------------------------------------------------------------------- */

static int64_t clamp(int64_t value) {
    return value < -FAR ? -FAR : value > FAR ? FAR : value;
}

struct ring_limits ring_limits_of(const clattn_attention_op *op) {
    const struct ring_limits limits = {.limited = op->causal != CLATTN_CAUSAL_NONE || op->window_left >= 0 ||
                                                  op->window_right >= 0 || tensor_is_present(&op->alibi),
                                       .causal = op->causal != CLATTN_CAUSAL_NONE,
                                       .diagonal = op->has_diagonal ? clamp(op->diagonal) : 0,
                                       .left = op->window_left < 0 ? -1 : clamp(op->window_left),
                                       .right = op->window_right < 0 ? -1 : clamp(op->window_right),
                                       .positions_matter = tensor_is_present(&op->alibi)};
    return limits;
}

clattn_ring_shard ring_shard_joined(const clattn_ring_shard *shard) {
    clattn_ring_shard joined = *shard;
    clattn_ring_piece *a = &joined.pieces[0], *b = &joined.pieces[1];
    if (a->rows == 0) {
        *a = *b;
        b->rows = 0;
    } else if (b->rows > 0 && a->first + a->rows == b->first) {
        a->rows += b->rows;
        b->rows = 0;
    }
    return joined;
}

/* The last key that a query sees, and the first. */
static int64_t last_key(const struct ring_limits *limits, int64_t query) {
    const int64_t at = query + limits->diagonal;
    if (limits->causal)
        return at;
    return limits->right >= 0 ? at + limits->right : 2 * FAR;
}

static int64_t first_key(const struct ring_limits *limits, int64_t query) {
    return limits->left >= 0 ? query + limits->diagonal - limits->left : -2 * FAR;
}

enum sight { HIDDEN, PARTLY, WHOLE };

static enum sight sight_of(const clattn_ring_piece *queries, const clattn_ring_piece *keys,
                           const struct ring_limits *limits) {
    const int64_t q_last = queries->first + queries->rows - 1, k_last = keys->first + keys->rows - 1;
    if (queries->rows == 0 || keys->rows == 0 || keys->first > last_key(limits, q_last) ||
        k_last < first_key(limits, queries->first))
        return HIDDEN;
    const bool whole = k_last <= last_key(limits, queries->first) && keys->first >= first_key(limits, q_last);
    return whole && !limits->positions_matter ? WHOLE : PARTLY;
}

/* What a piece of the queries sees of a shard of keys, after the tasks that there are. */
static int add_tasks(const clattn_ring_piece *queries, int64_t q_first, int bit, const clattn_ring_shard *keys,
                     const struct ring_limits *limits, struct ring_task *tasks) {
    int count = 0;
    int64_t k_first = 0;
    for (int i = 0; i < RING_PIECES; i++) {
        const clattn_ring_piece *piece = &keys->pieces[i];
        const enum sight sight = sight_of(queries, piece, limits);
        struct ring_task *before = count > 0 ? &tasks[count - 1] : NULL;
        if (sight == WHOLE && before != NULL && !before->limited)
            before->k_rows += piece->rows, before->key_pieces |= 1 << i;
        else if (sight != HIDDEN)
            tasks[count++] = (struct ring_task){.q_first = q_first,
                                                .q_rows = queries->rows,
                                                .k_first = k_first,
                                                .k_rows = piece->rows,
                                                .limited = sight == PARTLY,
                                                .diagonal = queries->first + limits->diagonal - piece->first,
                                                .pieces = bit,
                                                .key_pieces = 1 << i};
        k_first += piece->rows;
    }
    return count;
}

static bool same_keys(const struct ring_task *a, const struct ring_task *b) {
    return !a->limited && !b->limited && a->k_first == b->k_first && a->k_rows == b->k_rows;
}

int ring_tasks(const clattn_ring_shard *queries, const clattn_ring_shard *keys, const struct ring_limits *limits,
               struct ring_task tasks[RING_MOST_TASKS]) {
    const struct ring_limits none = {.left = -1, .right = -1};
    const clattn_ring_shard q = ring_shard_joined(queries), k = ring_shard_joined(keys);
    const struct ring_limits *used = limits->limited ? limits : &none;
    const int first = add_tasks(&q.pieces[0], 0, 1, &k, used, tasks);
    const int second = add_tasks(&q.pieces[1], q.pieces[0].rows, 2, &k, used, tasks + first);
    if (first != 1 || second != 1 || !same_keys(&tasks[0], &tasks[1]))
        return first + second;
    tasks[0].q_rows += tasks[1].q_rows;
    tasks[0].pieces = 3;
    return 1;
}
