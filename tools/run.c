/* clattn run: one operation on tensors from .npy files, its outputs written back as such. */
#include "arguments.h"
#include "command.h"
#include "job.h"
#include "npy.h"
#include "oracle.h"
#include "output.h"
#include "report.h"

#include <cjson/cJSON.h>
#include <clattn/variants.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: clattn run OP [KEY=VALUE]... [--in NAME=FILE.npy]... [--out NAME=FILE.npy]... [OPTION]...\n\n"
    "Operations, their tensors and settings:\n"
    "  attention        in q k v, out o lse; causal=none|bottom_right|top_left diagonal= scale= layout=bhsd|bshd\n"
    "                   in mask (u8, bool) bias alibi sinks; window=LEFT,RIGHT softcap= alibi=standard bias_dtype=\n"
    "                   in q_lengths k_lengths q_offsets k_offsets (cumulative; q, o [1,H,total,D]); max_q= max_k=\n"
    "                   in page_table [B,max_pages]; k, v [pages,page_size,heads,D], with page_layout=hnd\n"
    "                   [pages,heads,page_size,D]\n"
    "                   k_dtype=i8|i4|f8: codes in k, in k_scales (k_zeros) [..,D/block]; k_block=32|64\n"
    "                   k_nibbles=pairs|halves; v_ likewise; scales of f8 are one a head\n"
    "                   v_in_k=N: no v, values are the first N columns of k\n"
    "  attention_decode as attention, by the variants for few queries; splits= (of the keys; default: the library's\n"
    "                   number) page_size= (of page_table, checked against k)\n"
    "  attention_cascade   as attention without mask, bias, alibi and window; in prefix_k prefix_v [1,H,N,D], keys\n"
    "                   that all sequences see before their own\n"
    "  attention_backward   in q k v o lse dout (dlse) and attention's others but pages and codes, its settings;\n"
    "                   out dq dk dv (dbias dsinks)\n"
    "  attention_merge  in o0 lse0 o1 lse1 ..., out o lse; layout=\n"
    "  softmax, log_softmax, logsumexp   in x (mask bias), out y; axis= empty_rows=nan|zero scale=\n"
    "  softmax_state    in x, out m l; axis=\n"
    "  softmax_merge    in m0 l0 m1 l1 ..., out m l\n"
    "  rms_norm, layer_norm   in x (weight bias residual), out y (sum); eps= one_plus_weight=\n"
    "  rms_norm_backward, layer_norm_backward   in x dy (weight dsum), out dx dweight (dbias); eps= one_plus_weight=\n"
    "  rope_append      in q, k, v or some of them, out q_out, k_cache, v_cache (NaN where nothing is written);\n"
    "                   style=half_split|interleaved rotary_dim= rope_base= frequency_scale= cache_rows= layout=\n"
    "                   in k_lengths positions position_offsets q_lengths q_offsets cos sin;\n"
    "                   in page_table, with page_size=16 pages= page_layout=nhd|hnd\n"
    "                   k_dtype=i8|i4|f8: k_cache gets codes, with k_block= k_nibbles= k_zeros=1 as above; out\n"
    "                   k_scales (of f8: in) k_zeros k_values (what the codes stand for); v_ likewise\n"
    "  softmax_topk     in x, out values indices lse; k= empty_rows=, along the last dim\n"
    "  softmax_backward, log_softmax_backward   in y dy, out dx; scale=\n"
    "  cast             in x, out y; out_dtype=\n"
    "  unscale          in x, out y (in_place=1: x) overflow; scale= out_dtype= tensors=N (as a list of N parts)\n"
    "  adamw            in grad param (m v), out param m v (copy); lr= beta1= beta2= eps= weight_decay= steps=\n"
    "                   (taken so far) scale= copy=f16|bf16 tensors=\n"
    "  sgd              in grad param (velocity), out param velocity (copy); lr= momentum= dampening= nesterov=\n"
    "                   weight_decay= steps= scale= copy= tensors=\n"
    "  gemm             in a b (c, with beta=), out c; transpose_a= transpose_b= alpha= beta=\n"
    "  all: dtype=f32|f16|bf16 converts the float inputs first; out_dtype= of the main output (default: the "
    "inputs')\n\n"
    "Files hold <f4, <f2 or bf16 (as <u2, or with the descriptor bfloat16), masks |u1 or |b1, lengths, offsets and\n"
    "page tables <i4 or <i8, codes |i1 (int8) or |u1 (int4, two a byte; fp8), in C or Fortran order. dtype= leaves\n"
    "statistics, alibi and sinks in fp32, scales as they are, and the bias where bias_dtype= says so.\n"
    "Without --out nothing is written.\n\n"
    "  --variant NAME      this variant, not the library's choice\n"
    "  --parameters LIST   score_tiles=2,groups=8 and so on; clattn info shows their names\n"
    "  --check             compare with the double-precision oracle; exit status 1 where it is wrong\n"
    "  --device D          a device's number, or a part of its name\n"
    "  --json              one JSON document\n\n"
    "Example:\n"
    "  clattn run attention causal=bottom_right --in q=q.npy --in k=k.npy --in v=v.npy --out o=o.npy --check\n";

/* What the oracle may cost: a second or two. */
#define ORACLE_MULTIPLICATIONS 1e9

static int take_dtype(struct arguments *arguments, bool *convert, enum element *out) {
    const char *text = settings_text(&arguments->settings, "dtype");
    if (text && arguments->dtype)
        return complain(EXIT_USAGE, "dtype is given twice");
    text = text ? text : arguments->dtype;
    *convert = text != NULL;
    if (text && !element_named(text, out))
        return complain(EXIT_USAGE, "dtype=%s is none of: f32 f16 bf16", text);
    return EXIT_OK;
}

/* Statistics, slopes and sinks stay in fp32 whatever the dtype, and a bias that has a dtype of its own. */
static bool stays(struct job *job, const char *name, struct settings *settings) {
    if ((job->kind->op == CLATTN_OP_ATTENTION || job->kind == &job_attention_backward) && strcmp(name, "bias") == 0)
        return settings_text(settings, "bias_dtype") != NULL;
    if (strstr(name, "_scales") || strstr(name, "_zeros"))
        return true;
    if (job->kind == &job_adamw || job->kind == &job_sgd)
        return strcmp(name, "grad") != 0;
    return strncmp(name, "lse", 3) == 0 || strcmp(name, "dlse") == 0 || name[0] == 'm' || name[0] == 'l' ||
           strcmp(name, "alibi") == 0 || strcmp(name, "sinks") == 0;
}

static int load_input(struct job *job, const struct file_argument *file, struct settings *settings, bool convert,
                      enum element element) {
    char reason[NPY_REASON_SIZE];
    struct array array;
    if (!npy_read(file->path, &array, reason))
        return complain(EXIT_USAGE, "%s=%s: %s", file->name, file->path, reason);
    if (convert && element_is_float(array.element) && !stays(job, file->name, settings) &&
        !array_convert(&array, element)) {
        array_free(&array);
        return complain(EXIT_UNSUPPORTED, "%s: out of host memory", file->name);
    }
    return job_add(job, file->name, false, &array);
}

static int complain_no_output(const struct job *job, const char *name) {
    char names[256] = "";
    for (size_t i = 0, used = 0; i < job->count && used < sizeof names; i++)
        if (job->tensors[i].output)
            used += (size_t)snprintf(names + used, sizeof names - used, " %s", job->tensors[i].name);
    return complain(EXIT_USAGE, "%s has no output '%s'; with these inputs there are:%s", job->kind->name, name, names);
}

/* Before anything runs. */
static int check_outputs(const struct job *job, const struct arguments *arguments) {
    for (size_t i = 0; i < arguments->out_count; i++) {
        const struct file_argument *file = &arguments->out[i];
        const struct job_tensor *tensor = job_find(job, file->name);
        char what[sizeof file->name + 1];
        if (!tensor || !tensor->output)
            return complain_no_output(job, file->name);
        snprintf(what, sizeof what, "%s=", file->name);
        FORWARD(output_try(what, file->path));
        for (size_t other = 0; other < i; other++)
            if (output_same(arguments->out[other].path, file->path))
                return complain(EXIT_USAGE, "%s and %s cannot both go to %s", arguments->out[other].name, file->name,
                                file->path);
    }
    return EXIT_OK;
}

static int load(struct job *job, struct arguments *arguments) {
    bool convert;
    enum element element = ELEMENT_F32;
    FORWARD(take_dtype(arguments, &convert, &element));
    for (size_t i = 0; i < arguments->in_count; i++)
        FORWARD(load_input(job, &arguments->in[i], &arguments->settings, convert, element));
    const size_t inputs = job->count;
    FORWARD(job_arrange(job, &arguments->settings));
    for (size_t i = 0; i < inputs; i++)
        if (!job->tensors[i].asked_for)
            return complain(EXIT_USAGE, "%s has no input '%s'", job->kind->name, job->tensors[i].name);
    FORWARD(check_outputs(job, arguments));
    return inputs ? EXIT_OK : complain(EXIT_USAGE, "%s wants --in", job->kind->name);
}

static int write_outputs(const struct job *job, const struct arguments *arguments) {
    char reason[NPY_REASON_SIZE];
    for (size_t i = 0; i < arguments->out_count; i++) {
        const struct file_argument *file = &arguments->out[i];
        if (!npy_write(file->path, &job_find(job, file->name)->result, reason))
            return output_failed("", file->path, reason);
    }
    return EXIT_OK;
}

static int check(struct job *job, const struct machine *machine, const struct arguments *arguments,
                 struct errors *errors, size_t *rows) {
    struct oracle oracle;
    FORWARD(oracle_make(&oracle, job, ORACLE_MULTIPLICATIONS));
    *rows = oracle.count;
    oracle_compare(&oracle, job, errors);
    const int code = oracle_compare_p(&oracle, job, machine, arguments->variant, arguments->parameters, errors);
    oracle_free(&oracle);
    return code;
}

static void add_errors(cJSON *root, const struct errors *errors, size_t rows) {
    cJSON *object = cJSON_AddObjectToObject(root, "check");
    cJSON_AddNumberToObject(object, "rows", (double)rows);
    cJSON_AddNumberToObject(object, "max_abs", errors->max_abs);
    cJSON_AddNumberToObject(object, "max_rel", errors->max_rel);
    if (isnan(errors->p_error))
        cJSON_AddNullToObject(object, "p_error");
    else
        cJSON_AddNumberToObject(object, "p_error", errors->p_error);
    cJSON_AddBoolToObject(object, "ok", errors->ok);
    if (errors->why[0])
        cJSON_AddStringToObject(object, "note", errors->why);
    else
        cJSON_AddNullToObject(object, "note");
}

static void add_outputs(cJSON *root, const struct job *job) {
    cJSON *outputs = cJSON_AddArrayToObject(root, "outputs");
    for (size_t i = 0; i < job->count; i++) {
        const struct job_tensor *tensor = &job->tensors[i];
        if (!tensor->output)
            continue;
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "name", tensor->name);
        cJSON_AddStringToObject(object, "dtype", element_name(tensor->result.element));
        cJSON *shape = cJSON_AddArrayToObject(object, "shape");
        for (int d = 0; d < tensor->result.rank; d++)
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->result.dims[d]));
        cJSON_AddItemToArray(outputs, object);
    }
}

static void print_json(const struct job *job, const struct machine *machine, const clattn_choice *choice,
                       const struct errors *errors, size_t rows) {
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "device", machine->entry.name);
    cJSON_AddStringToObject(root, "op", job->kind->name);
    cJSON_AddStringToObject(root, "variant", choice->variant);
    cJSON_AddStringToObject(root, "name", choice->name);
    cJSON_AddStringToObject(root, "parameters", choice->parameters);
    add_outputs(root, job);
    if (errors)
        add_errors(root, errors, rows);
    char *text = cJSON_Print(root);
    if (text)
        puts(text);
    cJSON_free(text);
    cJSON_Delete(root);
}

static void print_text(const struct job *job, const struct machine *machine, const clattn_choice *choice,
                       const struct errors *errors, size_t rows) {
    char shape[192];
    const struct job_tensor *q = job_find(job, "q"), *first = q ? q : &job->tensors[0];
    job->kind->describe(job, shape, sizeof shape);
    printf("%s %s %s on %s: %s %s\n", job->kind->name, shape, element_name(first->host.element), machine->entry.name,
           choice->name[0] ? choice->name : choice->variant, choice->parameters);
    if (!errors)
        return;
    printf("max abs %.3g, max rel %.3g", errors->max_abs, errors->max_rel);
    if (!isnan(errors->p_error))
        printf(", P error %.3g", errors->p_error);
    printf(" over %zu rows: %s\n", rows, errors->ok ? "ok" : "FAIL");
    if (!errors->ok)
        printf("%s\n", errors->why);
}

static int execute(struct job *job, const struct machine *machine, struct arguments *arguments) {
    FORWARD(load(job, arguments));
    FORWARD(job_upload(job, machine));
    FORWARD(job_prepare(job, machine, arguments->variant, arguments->parameters));
    FORWARD(job_launch(job, machine, arguments->variant, arguments->parameters, NULL));
    FORWARD(job_read(job, machine));
    FORWARD(write_outputs(job, arguments));
    clattn_choice choice = {.size = sizeof choice};
    const clattn_launch launch = job_launch_of(job, machine, arguments->variant, arguments->parameters);
    clattn_variant_choose(machine->clattn, &job->op.head, &launch, &choice);
    struct errors errors = {.ok = true};
    size_t rows = 0;
    if (arguments->check)
        FORWARD(check(job, machine, arguments, &errors, &rows));
    (arguments->json ? print_json : print_text)(job, machine, &choice, arguments->check ? &errors : NULL, rows);
    return errors.ok ? EXIT_OK : EXIT_CHECK_FAILED;
}

int command_run(int argc, char **argv) {
    struct arguments arguments;
    FORWARD(arguments_parse(argc, argv, "in out variant parameters check json device dtype", &arguments));
    if (arguments.help)
        return fputs(help, stdout), EXIT_OK;
    if (arguments.word_count != 1)
        return complain(EXIT_USAGE, arguments.word_count ? "takes one operation" : "which operation?");
    const struct job_kind *kind = job_kind_named(arguments.words[0]);
    if (!kind)
        return job_complain_unknown(arguments.words[0]);
    struct machine machine;
    struct job job;
    job_start(&job, kind);
    int code = machine_open(arguments.device, &machine);
    if (code == EXIT_OK)
        code = execute(&job, &machine, &arguments);
    job_release(&job);
    machine_close(&machine);
    return code;
}
