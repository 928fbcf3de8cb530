/* What the gradients of attention need of each query, worked out once: what the exponentials of its scores are taken
 * against (its log-sum-exp; infinity where it sees nothing, which makes every probability 0), and delta, the sum of
 * dout * o less the gradient of its log-sum-exp. With DSINKS also what the query adds to the gradient of its head's
 * sink. A work-item takes a row; rows of sequences that lie one behind the other are numbered as sequence_find() says.
 * Parameters: SEQUENCES and SINKS of attention_call.clh; ELEMENT (of dout), OUT_ELEMENT (of o), DSINKS, ITEMS (of a
 * work-group). */
#define SCORE_WIDTH 1
#include "attention_rows.clh"
#include "gradient_call.clh"

/* In the order in which fp32 tiles sum dP: where one key has nearly all of the probability, dP - delta is then nearly
 * free of the errors that both sums have. */
static inline float row_dot(const __global byte_t *a, long at, const __global byte_t *b, long bt, int columns) {
    float sum = 0.0f;
    int col = 0;
    for (; col + 4 <= columns; col += 4) {
        const float4 x = element_load4(a, at + col, ELEMENT, 0), y = element_load4(b, bt + col, OUT_ELEMENT, 0);
        sum = MULTIPLY_ADD(x.x, y.x, sum);
        sum = MULTIPLY_ADD(x.y, y.y, sum);
        sum = MULTIPLY_ADD(x.z, y.z, sum);
        sum = MULTIPLY_ADD(x.w, y.w, sum);
    }
    for (; col < columns; col++)
        sum = MULTIPLY_ADD(element_load(a, at + col, ELEMENT), element_load(b, bt + col, OUT_ELEMENT), sum);
    return sum;
}

/* Of a query that sees no key o is 0, whatever dout holds: 0 times NaN must not reach its sink. */
static inline bool row_is_zero(const __global byte_t *o, long at, int columns) {
    int col = 0;
    while (col < columns && element_load(o, at + col, OUT_ELEMENT) == 0.0f)
        col++;
    return col == columns;
}

/* dlse: NULL where there is none. */
ROWS_KERNEL void attention_backward_terms(const __global byte_t *q, const __global byte_t *k, const __global byte_t *v,
                                          const __global byte_t *o, const __global float *lse MODIFIER_ARGUMENTS,
                                          attention_t call, const __global byte_t *dout, const __global float *dlse,
                                          __global float *terms, gradient_call_t gradients) {
    MODIFIERS(modifiers);
    const bool packed = SEQUENCES && modifiers.q_offsets;
    const int rows = sequence_blocks(&modifiers, &call, 1);
    const long row = get_global_id(0);
    if (row >= (long)(packed ? 1 : call.batches) * call.heads * rows)
        return;
    row_place_t place = row_place(row, call.heads, rows);
    if (packed)
        place.batch = sequence_find(&modifiers, &call, 1, place.index, &place.index);
    const sequence_t sequence = sequence_of(&modifiers, &call, place.batch);
    float of_sink = 0.0f;
    if (place.index >= 0 && place.index < sequence.nq) {
        const matrix_t from = sequence_queries(&sequence, dout, gradients.dout, place.head);
        const matrix_t result = sequence_queries(&sequence, o, call.o, place.head);
        const matrix_t of_lse = sequence_queries(&sequence, (const __global byte_t *)lse, call.lse, place.head);
        const matrix_t from_lse =
            sequence_queries(&sequence, (const __global byte_t *)dlse, gradients.dlse, place.head);
        const long row_of_o = matrix_row(result, place.index);
        const float log_sum = lse[matrix_row(of_lse, place.index)];
        const float of_sum = dlse ? dlse[matrix_row(from_lse, place.index)] : 0.0f;
        const float delta = row_dot(dout, matrix_row(from, place.index), o, row_of_o, gradients.value_dim) - of_sum;
        const long at = gradient_terms(&gradients, &call, &sequence, place.head) + 2 * (long)place.index;
        terms[at] = log_sum == -INFINITY ? INFINITY : log_sum;
        terms[at + 1] = log_sum == -INFINITY ? 0.0f : delta;
#if SINKS
        const float sink = modifiers.sinks[call.sinks + place.head];
        const bool alone = log_sum == sink && row_is_zero(o, row_of_o, gradients.value_dim);
        if (sink != -INFINITY)
            of_sink = -exp(sink - log_sum) * (alone ? -of_sum : delta);
#endif
    }
    if (DSINKS)
        terms[gradients.sink_terms + row] = of_sink;
}
