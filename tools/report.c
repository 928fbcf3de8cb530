/* Collects results and prints them. A speed never appears without the errors beside it. */
#include "report.h"
#include "table.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>

bool report_add(struct report *report, const struct result *result) {
    if (report->count == report->capacity) {
        const size_t capacity = report->capacity ? 2 * report->capacity : 64;
        struct result *larger = realloc(report->results, capacity * sizeof *larger);
        if (!larger)
            return false;
        report->results = larger;
        report->capacity = capacity;
    }
    report->results[report->count++] = *result;
    report->failures += result->checked && !result->errors.ok;
    return true;
}

void report_free(struct report *report) {
    free(report->results);
    report->results = NULL;
    report->count = report->capacity = 0;
}

static double gb_per_second(const struct result *result) {
    return result->median_s > 0 ? result->bytes / result->median_s / 1e9 : 0;
}

static double tflop_per_second(const struct result *result) {
    return result->median_s > 0 ? result->flops / result->median_s / 1e12 : 0;
}

void report_rate(const struct report *report, struct result *result) {
    const struct yardstick *y = &report->yardstick;
    if (!report->has_yardstick || result->median_s <= 0)
        return;
    result->share = result->memory_bound ? gb_per_second(result) * 1e9 / y->copy_bytes_per_second
                                         : tflop_per_second(result) * 1e12 / y->flops_per_second;
}

const char *format_seconds(double seconds, char text[16]) {
    if (seconds <= 0)
        snprintf(text, 16, "-");
    else if (seconds < 1e-3)
        snprintf(text, 16, "%.2f us", seconds * 1e6);
    else
        snprintf(text, 16, seconds < 1 ? "%.3f ms" : "%.3f s", seconds < 1 ? seconds * 1e3 : seconds);
    return text;
}

const char *format_bytes(double bytes, char text[16]) {
    if (bytes < 1024)
        snprintf(text, 16, "%.0f B", bytes);
    else if (bytes < 1048576)
        snprintf(text, 16, "%.1f KiB", bytes / 1024);
    else if (bytes < 1073741824)
        snprintf(text, 16, "%.1f MiB", bytes / 1048576);
    else
        snprintf(text, 16, "%.2f GiB", bytes / 1073741824);
    return text;
}

static const char *format_error(double error, bool known, char text[16]) {
    if (!known || isnan(error))
        snprintf(text, 16, "-");
    else
        snprintf(text, 16, "%.1e", error);
    return text;
}

static const char *format_speed(const struct result *result, char text[24]) {
    if (result->median_s <= 0 || result->bytes <= 0)
        snprintf(text, 24, "-");
    else if (result->memory_bound)
        snprintf(text, 24, "%.1f GB/s", gb_per_second(result));
    else if (tflop_per_second(result) < 0.1)
        snprintf(text, 24, "%.2f GFLOP/s", tflop_per_second(result) * 1e3);
    else
        snprintf(text, 24, "%.2f TFLOP/s", tflop_per_second(result));
    return text;
}

static const char *format_ratio(const struct result *result, char text[16]) {
    if (result->ratio > 0)
        snprintf(text, 16, "%.2fx", result->ratio);
    else
        text[0] = '\0';
    return text;
}

static void add_row(struct table *table, const struct result *r, bool with_memory) {
    char abs[16], rel[16], p[16], time[16], speed[24], share[16] = "-", peak[16], work[16], ratio[16];
    if (r->share > 0)
        snprintf(share, sizeof share, "%.0f%%", 100 * r->share);
    char verdict[128];
    snprintf(verdict, sizeof verdict, "%s%s%s",
             !r->checked    ? "unchecked"
             : r->errors.ok ? "ok"
                            : "FAIL",
             r->asked[0] ? "  " : "", r->asked);
    format_error(r->errors.max_abs, r->checked, abs);
    format_error(r->errors.max_rel, r->checked, rel);
    format_error(r->errors.p_error, r->checked, p);
    format_seconds(r->median_s, time);
    format_speed(r, speed);
    if (with_memory)
        table_add(table, "%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s", r->op, r->shape, r->dtype, r->variant, abs, rel,
                  p, time, speed, share, format_bytes((double)r->peak_device_bytes, peak),
                  format_bytes((double)r->workspace_bytes, work), format_ratio(r, ratio), verdict);
    else
        table_add(table, "%s|%s|%s|%s|%s|%s|%s|%s|%s|%s", r->op, r->shape, r->dtype, r->variant, abs, rel, p, time,
                  speed, verdict);
}

void report_print_table(const struct report *report, bool with_memory, FILE *to) {
    struct table table;
    table_init(&table, with_memory ? "<op|<shape|<dtype|<variant|max abs|max rel|P error|latency|speed|share|"
                                     "peak memory|workspace|vs|<verdict"
                                   : "<op|<shape|<dtype|<variant|max abs|max rel|P error|latency|speed|<verdict");
    for (size_t i = 0; i < report->count; i++)
        add_row(&table, &report->results[i], with_memory);
    table_print(&table, to);
    table_free(&table);
    for (size_t i = 0; i < report->count; i++) {
        const struct result *r = &report->results[i];
        if (r->checked && !r->errors.ok)
            fprintf(to, "FAIL %s %s %s %s: %s\n", r->op, r->shape, r->dtype, r->variant, r->errors.why);
        else if (r->note[0])
            fprintf(to, "%s %s %s %s: %s\n", r->op, r->shape, r->dtype, r->variant, r->note);
    }
    if (report->has_yardstick)
        fprintf(to,
                "\n%s: copies %.1f GB/s (read + written, %.0f MiB each way), multiply-adds %.1f GFLOP/s in fp32; "
                "share is of the copy for\nsoftmax, norms, merges and steps of training, of the multiply-adds for the "
                "others. seed=%llu\n",
                report->machine->entry.name, report->yardstick.copy_bytes_per_second / 1e9,
                (double)report->yardstick.copy_bytes / 1048576, report->yardstick.flops_per_second / 1e9,
                (unsigned long long)report->seed);
}

static void add_number(cJSON *object, const char *key, double value, bool known) {
    if (known && isfinite(value))
        cJSON_AddNumberToObject(object, key, value);
    else
        cJSON_AddNullToObject(object, key);
}

static void add_text(cJSON *object, const char *key, const char *text) {
    if (text[0])
        cJSON_AddStringToObject(object, key, text);
    else
        cJSON_AddNullToObject(object, key);
}

static cJSON *result_json(const struct result *r) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", r->op);
    cJSON_AddStringToObject(object, "variant", r->variant);
    cJSON_AddStringToObject(object, "name", r->name);
    cJSON_AddStringToObject(object, "parameters", r->parameters);
    cJSON_AddStringToObject(object, "dtype", r->dtype);
    cJSON_AddStringToObject(object, "shape", r->shape);
    add_number(object, "max_abs", r->errors.max_abs, r->checked);
    add_number(object, "max_rel", r->errors.max_rel, r->checked);
    add_number(object, "p_error", r->errors.p_error, r->checked);
    add_number(object, "max_difference", r->errors.difference, r->checked);
    add_number(object, "median_s", r->median_s, r->median_s > 0);
    add_number(object, "gb_s", gb_per_second(r), r->median_s > 0);
    add_number(object, "tflop_s", tflop_per_second(r), r->median_s > 0 && r->flops > 0);
    add_number(object, "share", r->share, r->share > 0);
    add_number(object, "ratio", r->ratio, r->ratio > 0);
    cJSON_AddNumberToObject(object, "peak_device_bytes", (double)r->peak_device_bytes);
    cJSON_AddNumberToObject(object, "workspace_bytes", (double)r->workspace_bytes);
    cJSON_AddNumberToObject(object, "runs", r->runs);
    cJSON_AddNumberToObject(object, "calls", r->calls);
    cJSON_AddBoolToObject(object, "ok", !r->checked || r->errors.ok);
    add_text(object, "note", r->errors.why[0] ? r->errors.why : r->note);
    return object;
}

bool report_print_json(const struct report *report, FILE *to) {
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "device", report->machine->entry.name);
    cJSON_AddStringToObject(root, "platform", report->machine->entry.platform_name);
    cJSON_AddStringToObject(root, "version", clattn_version());
    cJSON_AddNumberToObject(root, "seed", (double)report->seed);
    add_number(root, "copy_gb_s", report->yardstick.copy_bytes_per_second / 1e9, report->has_yardstick);
    add_number(root, "peak_tflop_s", report->yardstick.flops_per_second / 1e12, report->has_yardstick);
    cJSON *results = cJSON_AddArrayToObject(root, "results");
    for (size_t i = 0; i < report->count; i++)
        cJSON_AddItemToArray(results, result_json(&report->results[i]));
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    if (!text)
        return false;
    fprintf(to, "%s\n", text);
    cJSON_free(text);
    return true;
}

bool report_write_csv(const struct report *report, const char *path) {
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    fputs("op,variant,dtype,shape,max_abs,max_rel,p_error,median_s,gb_s,tflop_s,share,peak_device_bytes,"
          "workspace_bytes,ok\n",
          file);
    for (size_t i = 0; i < report->count; i++) {
        const struct result *r = &report->results[i];
        fprintf(file, "%s,%s,%s,\"%s\",%.6g,%.6g,%.6g,%.9g,%.6g,%.6g,%.4g,%llu,%llu,%d\n", r->op, r->variant, r->dtype,
                r->shape, r->errors.max_abs, r->errors.max_rel, r->errors.p_error, r->median_s, gb_per_second(r),
                tflop_per_second(r), r->share, (unsigned long long)r->peak_device_bytes,
                (unsigned long long)r->workspace_bytes, !r->checked || r->errors.ok);
    }
    const bool written = !ferror(file);
    return fclose(file) == 0 && written;
}
