/* The optional inputs of attention as they come from files: other types are converted where that is exact, and values
 * that the library would have to take on trust are looked at while they lie on the host. */
#include "command.h"
#include "job_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char gradient_names[] =
    "q k v o lse dout dlse mask bias alibi sinks q_lengths k_lengths q_offsets k_offsets";
static const char cascade_names[] = "q k v prefix_k prefix_v sinks q_lengths k_lengths q_offsets k_offsets page_table "
                                    "k_scales k_zeros v_scales v_zeros";
static const char forward_names[] = "q k v mask bias alibi sinks q_lengths k_lengths q_offsets k_offsets page_table "
                                    "k_scales k_zeros v_scales v_zeros"; /* all there are */

int64_t job_attention_sequences(const struct job *job) {
    const struct job_tensor *offsets = job_find(job, "q_offsets");
    return offsets ? offsets->view.dims[0] - 1 : job_find(job, "q")->view.dims[0];
}

int64_t job_attention_columns(const struct job *job) {
    const int64_t rows = job_find(job, "k")->view.dims[2];
    const struct job_tensor *table = job_find(job, "page_table");
    return table && table->view.rank == 2 ? table->view.dims[1] * rows : rows;
}

/* ---- names and types --------------------------------------------------------------------------------------------- */

static int refuse_unknown(const struct job *job) {
    const char *const names = job->kind->op == CLATTN_OP_ATTENTION_BACKWARD  ? gradient_names
                              : job->kind->op == CLATTN_OP_ATTENTION_CASCADE ? cascade_names
                                                                             : forward_names;
    for (size_t i = 0; i < job->count; i++) {
        const char *name = job->tensors[i].name, *at = names;
        const size_t length = strlen(name);
        while (at && (strncmp(at, name, length) != 0 || (at[length] != ' ' && at[length])))
            at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL;
        if (!at)
            return complain(EXIT_USAGE, "%s has no input '%s'; there are: %s", job->kind->name, name, names);
    }
    return EXIT_OK;
}

static int convert(struct job *job, struct job_tensor *tensor, enum element element) {
    if (!array_convert(&tensor->host, element))
        return complain(EXIT_UNSUPPORTED, "%s: out of host memory", tensor->name);
    job_set_order(job, tensor->name, tensor->sequence_first); /* makes the view anew */
    return EXIT_OK;
}

static int take_mask(const struct job *job) {
    const struct job_tensor *mask = job_find(job, "mask");
    if (mask && mask->host.element != ELEMENT_U8 && mask->host.element != ELEMENT_BOOL)
        return complain(EXIT_USAGE, "mask: element type %s, want u8 or bool", element_name(mask->host.element));
    return EXIT_OK;
}

static int take_floats(struct job *job, const char *name, enum element element) {
    struct job_tensor *tensor = job_find(job, name);
    if (!tensor)
        return EXIT_OK;
    FORWARD(job_require(job, name, 0));
    return convert(job, tensor, element);
}

static int take_bias(struct job *job, struct settings *settings) {
    const struct job_tensor *bias = job_find(job, "bias");
    int choice = bias ? (int)bias->host.element : 0;
    if (bias)
        FORWARD(settings_choice(settings, "bias_dtype", "f32 f16 bf16", &choice));
    return take_floats(job, "bias", (enum element)choice);
}

int job_take_integers(struct job *job, const char *name, int rank) {
    struct job_tensor *tensor = job_find(job, name);
    if (!tensor)
        return EXIT_OK;
    const struct array *host = &tensor->host;
    if (host->element != ELEMENT_I32 && host->element != ELEMENT_I64)
        return complain(EXIT_USAGE, "%s: element type %s, want i32 or i64", name, element_name(host->element));
    if (host->rank != rank)
        return complain(EXIT_USAGE, "%s: %d dimensions, want %d", name, host->rank, rank);
    for (size_t i = 0; i < host->count; i++)
        if (fabs(array_get(host, i)) > INT32_MAX)
            return complain(EXIT_USAGE, "%s: %.0f at %zu does not fit into 32 bits", name, array_get(host, i), i);
    return convert(job, tensor, ELEMENT_I32);
}

/* alibi=standard: the slopes of as many heads as q has. */
static int add_slopes(struct job *job, struct settings *settings) {
    int standard = 0;
    struct array array;
    const int64_t heads = job_find(job, "q")->view.dims[1];
    const bool wanted = settings_text(settings, "alibi") != NULL;
    FORWARD(settings_choice(settings, "alibi", "standard", &standard));
    if (!wanted)
        return EXIT_OK;
    if (job_find(job, "alibi"))
        return complain(EXIT_USAGE, "alibi: slopes are given, and asked for by alibi=standard");
    if (heads > INT32_MAX || !array_make(&array, ELEMENT_F32, 1, &heads))
        return complain(EXIT_UNSUPPORTED, "alibi: %lld heads are too many", (long long)heads);
    const clattn_status status = heads ? clattn_alibi_slopes((int32_t)heads, array.data) : CLATTN_SUCCESS;
    if (status != CLATTN_SUCCESS) {
        array_free(&array);
        return complain(EXIT_USAGE, "alibi: %s", clattn_last_error());
    }
    return job_add(job, "alibi", false, &array);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static int64_t integer_at(const struct job_tensor *tensor, int64_t index) {
    return (int64_t)array_get(&tensor->host, (size_t)index);
}

static int check_offsets(const struct job *job, const char *name, int64_t rows) {
    const struct job_tensor *offsets = job_find(job, name);
    int64_t last = 0;
    if (!offsets)
        return EXIT_OK;
    if (offsets->host.count == 0)
        return complain(EXIT_USAGE, "%s: of B sequences it holds B + 1 numbers, not 0", name);
    for (size_t i = 0; i < offsets->host.count; i++) {
        const int64_t offset = integer_at(offsets, (int64_t)i);
        if (offset < last || offset > rows)
            return complain(EXIT_USAGE, "%s[%zu] = %lld, want %lld to %lld: offsets rise up to the number of rows",
                            name, i, (long long)offset, (long long)last, (long long)rows);
        last = offset;
    }
    return EXIT_OK;
}

static int check_lengths(const struct job *job, const char *name, int64_t most) {
    const struct job_tensor *lengths = job_find(job, name);
    for (size_t i = 0; lengths && i < lengths->host.count; i++) {
        const int64_t length = integer_at(lengths, (int64_t)i);
        if (length < 0 || length > most)
            return complain(EXIT_USAGE, "%s[%zu] = %lld, want 0 to %lld", name, i, (long long)length, (long long)most);
    }
    return EXIT_OK;
}

/* What lies behind a sequence's last page may be anything. */
static int check_pages(const struct job *job) {
    const struct job_tensor *table = job_find(job, "page_table"), *lengths = job_find(job, "k_lengths");
    if (!table)
        return EXIT_OK;
    const clattn_tensor k = job_view(job, "k");
    const int64_t sequences = table->view.dims[0], width = table->view.dims[1], most = job_attention_op(job)->max_k;
    for (int64_t b = 0; b < sequences; b++) {
        int64_t keys = width * k.dims[2];
        if (lengths && b < (int64_t)lengths->host.count)
            keys = integer_at(lengths, b);
        if (most > 0 && most < keys)
            keys = most;
        for (int64_t p = 0; p * k.dims[2] < keys; p++) {
            const int64_t page = integer_at(table, b * width + p);
            if (page < 0 || page >= k.dims[0])
                return complain(EXIT_USAGE, "page_table[%lld][%lld] = %lld, k has %lld pages%s", (long long)b,
                                (long long)p, (long long)page, (long long)k.dims[0],
                                lengths ? "" : "; without k_lengths every entry of the table is in use");
        }
    }
    return EXIT_OK;
}

int job_attention_take_inputs(struct job *job, struct settings *settings) {
    FORWARD(refuse_unknown(job));
    FORWARD(take_mask(job));
    FORWARD(take_bias(job, settings));
    FORWARD(take_floats(job, "alibi", ELEMENT_F32));
    FORWARD(take_floats(job, "sinks", ELEMENT_F32));
    FORWARD(job_take_integers(job, "q_lengths", 1));
    FORWARD(job_take_integers(job, "k_lengths", 1));
    FORWARD(job_take_integers(job, "q_offsets", 1));
    FORWARD(job_take_integers(job, "k_offsets", 1));
    FORWARD(job_take_integers(job, "page_table", 2));
    FORWARD(add_slopes(job, settings));
    FORWARD(check_offsets(job, "q_offsets", job_view(job, "q").dims[2]));
    FORWARD(check_offsets(job, "k_offsets", job_view(job, "k").dims[2]));
    FORWARD(check_lengths(job, "q_lengths", job_view(job, "q").dims[2]));
    FORWARD(check_lengths(job, "k_lengths", job_attention_columns(job)));
    return check_pages(job);
}
