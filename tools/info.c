/* clattn info: every device, what the library knows of it, and which variant each operation would run and why the
 * better ones are refused. One JSON document is built; the text is printed from it, so that both say the same. */
#include "arguments.h"
#include "command.h"
#include "job.h"

#include <cjson/cJSON.h>
#include <clattn/variants.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: clattn info [--json] [--device D]\n\n"
    "Shows platforms and devices: driver, architecture, memory, sub-group back-end, capabilities and the outcome of\n"
    "their self-tests, the variants that each operation would run on representative problems and why better ones are\n"
    "refused, where the program cache and the tuning database lie, and which tuning rows are in force.\n\n"
    "  --json       one JSON document\n"
    "  --device D   only this device: its number, or a part of its name\n\n"
    "Example: clattn info --json\n";

/* One problem per operation that stands for its use. */
static const struct {
    const struct job_kind *kind;
    const char *dims;
} problems[] = {{&job_attention, "1,8,2,1024,1024,128"},
                {&job_attention_decode, "1,8,2,1,8192,128"},
                {&job_attention_backward, "1,8,2,1024,1024,128"},
                {&job_softmax, "256,1024"},
                {&job_softmax, "16,65536"},
                {&job_softmax_state, "256,1024"},
                {&job_attention_merge, "2,1,8,256,64"},
                {&job_softmax_merge, "2,4096"},
                {&job_softmax_topk, "16,65536"},
                {&job_rope_append, "1,32,8,64,128"},
                {&job_softmax_backward, "256,1024"},
                {&job_rms_norm, "256,4096"},
                {&job_rms_norm_backward, "256,4096"},
                {&job_cast, "1048576"},
                {&job_unscale, "1048576"},
                {&job_adamw, "1048576"},
                {&job_sgd, "1048576"},
                {&job_gemm, "512,512,512"}};

static void describe_device(cJSON *object, const clattn_device_info *info) {
    cJSON_AddStringToObject(object, "vendor", info->vendor);
    cJSON_AddStringToObject(object, "driver", info->driver);
    cJSON_AddStringToObject(object, "architecture", info->architecture);
    cJSON_AddNumberToObject(object, "compute_units", info->compute_units);
    cJSON_AddNumberToObject(object, "max_work_group_size", info->max_work_group_size);
    cJSON_AddNumberToObject(object, "local_memory", (double)info->local_memory);
    cJSON_AddNumberToObject(object, "global_memory", (double)info->global_memory);
    cJSON_AddNumberToObject(object, "max_allocation", (double)info->max_allocation);
    cJSON_AddStringToObject(object, "subgroup_backend", info->subgroup_backend);
    cJSON_AddNumberToObject(object, "subgroup_size", info->subgroup_size);
    cJSON_AddStringToObject(object, "capabilities", info->capabilities);
    cJSON_AddStringToObject(object, "cache_dir", info->cache_dir);
    cJSON_AddStringToObject(object, "tuning_db", info->tuning_db);
}

static void describe_self_tests(cJSON *object, const struct machine *machine) {
    cJSON *tests = cJSON_AddObjectToObject(object, "self_tests");
    for (size_t i = 0;; i++) {
        const char *capability = NULL, *verdict = NULL;
        if (clattn_capability_report(machine->clattn, i, 1, &capability, &verdict) != CLATTN_SUCCESS || !capability)
            return;
        cJSON_AddStringToObject(tests, capability, verdict);
    }
}

/* The variants that were not chosen: refused with a reason, or accepted too and less preferred. */
static void describe_others(cJSON *choice, const struct job *job, const struct machine *machine, const char *chosen) {
    cJSON *refused = cJSON_AddArrayToObject(choice, "refused");
    cJSON *accepted = cJSON_AddArrayToObject(choice, "less_preferred");
    for (size_t i = 0; i < clattn_variant_count(job->kind->op); i++) {
        char reason[160] = "";
        const char *name = clattn_variant_name(job->kind->op, i);
        if (strcmp(name, chosen) == 0)
            continue;
        if (clattn_variant_question(machine->clattn, &job->op.head, name, reason, sizeof reason) != CLATTN_SUCCESS)
            snprintf(reason, sizeof reason, "%s", clattn_last_error());
        if (!reason[0]) {
            cJSON_AddItemToArray(accepted, cJSON_CreateString(name));
            continue;
        }
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "variant", name);
        cJSON_AddStringToObject(item, "reason", reason);
        cJSON_AddItemToArray(refused, item);
    }
}

static cJSON *describe_choice(const struct job *job, const struct machine *machine) {
    clattn_choice chosen = {.size = sizeof chosen};
    char shape[192];
    job->kind->describe(job, shape, sizeof shape);
    cJSON *choice = cJSON_CreateObject();
    cJSON_AddStringToObject(choice, "op", job->kind->name);
    cJSON_AddStringToObject(choice, "shape", shape);
    cJSON_AddStringToObject(choice, "dtype", element_name(job->tensors[0].host.element));
    const clattn_status status = clattn_variant_choose(machine->clattn, &job->op.head, NULL, &chosen);
    if (status != CLATTN_SUCCESS) {
        cJSON_AddStringToObject(choice, "error", clattn_last_error());
        chosen.variant[0] = '\0';
    }
    cJSON_AddStringToObject(choice, "variant", chosen.variant);
    cJSON_AddStringToObject(choice, "name", chosen.name);
    cJSON_AddStringToObject(choice, "parameters", chosen.parameters);
    cJSON_AddStringToObject(choice, "tuning", chosen.source);
    describe_others(choice, job, machine, chosen.variant);
    return choice;
}

static void describe_choices(cJSON *object, const struct machine *machine) {
    cJSON *choices = cJSON_AddArrayToObject(object, "choices");
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        for (enum element e = ELEMENT_F32; e <= ELEMENT_BF16; e++) {
            if (problems[i].kind == &job_softmax_merge && e != ELEMENT_F32)
                continue;
            struct job job;
            struct settings none = {.count = 0};
            struct job_shape shape = {.element = e, .blank = true};
            shape.count = parse_integers(problems[i].dims, shape.dims, JOB_MAX_DIMS);
            if (job_generate(&job, problems[i].kind, &shape, &none) == EXIT_OK && job_upload(&job, machine) == EXIT_OK)
                cJSON_AddItemToArray(choices, describe_choice(&job, machine));
            job_release(&job);
        }
}

/* Every row of the user's database that is for the device, and those of the library that are for it alone or for its
 * kind: defaults are told by the choices. */
static void describe_rows(cJSON *object, const struct machine *machine) {
    cJSON *rows = cJSON_AddArrayToObject(object, "tuning_rows");
    clattn_tuning_row row = {.size = sizeof row};
    for (size_t i = 0; clattn_tuning_row_at(machine->clattn, i, &row) == CLATTN_SUCCESS && row.op[0]; i++) {
        if (!row.user && strcmp(row.level, "default") == 0)
            continue;
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "op", row.op);
        cJSON_AddStringToObject(item, row.prefers ? "prefer" : "variant", row.variant);
        cJSON_AddStringToObject(item, "dtype", row.dtype[0] ? row.dtype : "all");
        cJSON_AddNumberToObject(item, "min_size", (double)row.min_size);
        if (row.max_size != INT64_MAX)
            cJSON_AddNumberToObject(item, "max_size", (double)row.max_size);
        cJSON_AddStringToObject(item, row.prefers ? "problems" : "parameters", row.parameters);
        cJSON_AddStringToObject(item, "level", row.level);
        cJSON_AddBoolToObject(item, "shipped", !row.user);
        cJSON_AddStringToObject(item, "ignored", row.ignored);
        cJSON_AddItemToArray(rows, item);
    }
}

static const char *type_name(cl_device_type type) {
    return type & CL_DEVICE_TYPE_GPU ? "GPU" : type & CL_DEVICE_TYPE_CPU ? "CPU" : "accelerator";
}

static int describe_entry(const struct device_entry *entry, size_t index, cJSON *devices) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "index", (double)index);
    cJSON_AddStringToObject(object, "name", entry->name);
    cJSON_AddStringToObject(object, "platform", entry->platform_name);
    cJSON_AddStringToObject(object, "type", type_name(entry->type));
    struct machine machine;
    clattn_device_info info = {.size = sizeof info};
    const int code = machine_open_entry(entry, &machine);
    if (code == EXIT_OK && clattn_context_info(machine.clattn, &info) == CLATTN_SUCCESS) {
        describe_device(object, &info);
        describe_self_tests(object, &machine);
        describe_choices(object, &machine);
        describe_rows(object, &machine);
    } else {
        cJSON_AddStringToObject(object, "error", clattn_last_error());
    }
    machine_close(&machine);
    cJSON_AddItemToArray(devices, object);
    return code;
}

static const char *text_of(const cJSON *object, const char *key) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(object, key));
    return text ? text : "";
}

static double number_of(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItem(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static void print_choice(const cJSON *choice) {
    const cJSON *refused, *accepted, *others = cJSON_GetObjectItem(choice, "less_preferred");
    printf("    %-15s %-4s %-22s -> %s", text_of(choice, "op"), text_of(choice, "dtype"), text_of(choice, "shape"),
           *text_of(choice, "variant") ? text_of(choice, "variant") : text_of(choice, "error"));
    if (*text_of(choice, "parameters"))
        printf(" (%s; tuning: %s)", text_of(choice, "parameters"), text_of(choice, "tuning"));
    putchar('\n');
    cJSON_ArrayForEach(refused, cJSON_GetObjectItem(choice, "refused")) {
        printf("      not %s: %s\n", text_of(refused, "variant"), text_of(refused, "reason"));
    }
    cJSON_ArrayForEach(accepted, others) {
        printf("%s%s", accepted == others->child ? "      less preferred: " : ", ", accepted->valuestring);
    }
    if (others && others->child)
        putchar('\n');
}

static void print_row(const cJSON *row) {
    const bool prefers = cJSON_HasObjectItem(row, "prefer");
    printf("    %-18s %-22s %-4s %g..", text_of(row, "op"), text_of(row, prefers ? "prefer" : "variant"),
           text_of(row, "dtype"), number_of(row, "min_size"));
    if (cJSON_HasObjectItem(row, "max_size"))
        printf("%g", number_of(row, "max_size"));
    printf(" %s%s (%s, %s)%s%s\n", prefers ? "preferred where " : "", text_of(row, prefers ? "problems" : "parameters"),
           text_of(row, "level"), cJSON_IsTrue(cJSON_GetObjectItem(row, "shipped")) ? "shipped" : "own",
           *text_of(row, "ignored") ? ": ignored, " : "", text_of(row, "ignored"));
}

static void print_rows(const cJSON *rows) {
    const cJSON *row;
    if (cJSON_GetArraySize(rows) == 0)
        return;
    printf("    tuning rows:\n");
    cJSON_ArrayForEach(row, rows) {
        print_row(row);
    }
}

static void print_device(const cJSON *device) {
    const cJSON *item;
    printf("[%g] %s (%s, %s)\n", number_of(device, "index"), text_of(device, "name"), text_of(device, "type"),
           text_of(device, "platform"));
    if (*text_of(device, "error")) {
        printf("    cannot be used: %s\n", text_of(device, "error"));
        return;
    }
    printf("    vendor %s, driver %s, architecture %s\n", text_of(device, "vendor"), text_of(device, "driver"),
           text_of(device, "architecture"));
    printf("    %g compute units, work-groups up to %g, %g KiB local memory, %.2f GiB memory, buffers up to %.2f GiB\n",
           number_of(device, "compute_units"), number_of(device, "max_work_group_size"),
           number_of(device, "local_memory") / 1024, number_of(device, "global_memory") / 1073741824,
           number_of(device, "max_allocation") / 1073741824);
    printf("    sub-groups: %s", text_of(device, "subgroup_backend"));
    if (number_of(device, "subgroup_size") > 0)
        printf(" of %g", number_of(device, "subgroup_size"));
    printf("\n    capabilities: %s\n    self-tests:",
           *text_of(device, "capabilities") ? text_of(device, "capabilities") : "none");
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(device, "self_tests")) {
        printf(" %s %s%s", item->string, item->valuestring, item->next ? "," : "");
    }
    printf("\n    program cache: %s\n    tuning database: %s\n    would run:\n",
           *text_of(device, "cache_dir") ? text_of(device, "cache_dir") : "off",
           *text_of(device, "tuning_db") ? text_of(device, "tuning_db") : "none");
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(device, "choices")) {
        print_choice(item);
    }
    print_rows(cJSON_GetObjectItem(device, "tuning_rows"));
}

static void print_json(const cJSON *root) {
    char *text = cJSON_Print(root);
    if (text)
        puts(text);
    cJSON_free(text);
}

/* A wrong setting of the environment is the user's mistake, and true of every device; a device that cannot be used is
 * something to show. */
static int describe_entries(const struct device_entry *wanted, cJSON *devices) {
    struct device_entry entries[MACHINE_MAX_DEVICES];
    const size_t count = machine_list(entries);
    for (size_t i = 0; i < count; i++)
        if (!wanted->device || wanted->device == entries[i].device)
            if (describe_entry(&entries[i], i, devices) == EXIT_USAGE)
                return EXIT_USAGE;
    return count ? EXIT_OK : complain(EXIT_UNSUPPORTED, "there is no OpenCL device");
}

int command_info(int argc, char **argv) {
    struct arguments arguments;
    struct device_entry wanted = {.device = NULL};
    FORWARD(arguments_parse(argc, argv, "json device", &arguments));
    if (arguments.help)
        return fputs(help, stdout), EXIT_OK;
    if (arguments.word_count || arguments.settings.count)
        return complain(EXIT_USAGE, "takes no operation and no settings");
    if (arguments.device)
        FORWARD(machine_find(arguments.device, &wanted));
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "version", clattn_version());
    cJSON *devices = cJSON_AddArrayToObject(root, "devices");
    const int code = describe_entries(&wanted, devices);
    const cJSON *device;
    if (code != EXIT_USAGE && arguments.json)
        print_json(root);
    else if (code != EXIT_USAGE)
        cJSON_ArrayForEach(device, devices) print_device(device);
    cJSON_Delete(root);
    return code;
}
