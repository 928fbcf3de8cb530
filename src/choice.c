/* The choice of a variant. The way of a warm call allocates nothing and formats no text: reasons are put together only
 * where nothing is left to choose, or where the log asks for them. */
#include "choice.h"
#include "context.h"
#include "log.h"
#include "status.h"

#include <stdio.h>
#include <string.h>

/* Writes "name: reason" of every row that the facts refuse. */
static void list_refusals(const struct device_facts *facts, const struct problem *problem, char *text, size_t size) {
    size_t count = 0, used = 0;
    const struct variant *table = variant_table(&count);
    text[0] = '\0';
    for (size_t i = 0; i < count && used < size; i++) {
        const char *reason = table[i].op == problem->op ? variant_pick_refusal(&table[i], facts, problem) : NULL;
        if (reason != NULL)
            used += (size_t)snprintf(text + used, size - used, " %s: %s", table[i].name, reason);
    }
}

clattn_status choice_find(clattn_op_kind op, const char *name, const struct variant **out) {
    size_t count = 0, used = 0;
    char names[256] = "";
    const struct variant *table = variant_table(&count);
    *out = variant_named(op, name);
    if (*out != NULL)
        return CLATTN_SUCCESS;
    for (size_t i = 0; i < count && used < sizeof names; i++)
        if (table[i].op == op)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", table[i].name);
    return status_set(CLATTN_INVALID_ARGUMENT, "variant: %s has no \"%.60s\"; it has %s", variant_op_name(op), name,
                      names);
}

static uint64_t relied_on(const struct variant *variant, const struct device_facts *facts) {
    return (variant->needs | variant->uses) & facts->caps;
}

/* Runs the self-tests that the variant needs; false, with the facts as they then hold, where the variant cannot run. */
static bool tests_hold(clattn_context *context, const struct variant *variant, const struct problem *problem,
                       struct device_facts *facts) {
    /* One at a time: each that fails is to be known, not the first alone. */
    for (int cap = 0; cap < CAP_COUNT; cap++) {
        const uint64_t bit = relied_on(variant, facts) & CAP_BIT(cap);
        if (bit != 0 && !selftest_passes(context, bit))
            *facts = selftest_facts(context);
    }
    return variant_refusal(variant, facts, problem) == NULL;
}

static clattn_status take_named(clattn_context *context, const struct problem *problem, const char *name,
                                bool run_selftest, struct choice *out) {
    const struct variant *variant = NULL;
    FORWARD(choice_find(problem->op, name, &variant));
    out->variant = variant;
    const char *reason = variant_refusal(variant, &out->facts, problem);
    if (reason == NULL && run_selftest && !tests_hold(context, variant, problem, &out->facts))
        reason = variant_refusal(variant, &out->facts, problem);
    RETURN_IF(reason != NULL, CLATTN_UNSUPPORTED, "variant %s: %s", name, reason);
    return CLATTN_SUCCESS;
}

/* The rows before the chosen one; what has no reason of its own gave way to a preferred one. */
static void log_refusals(const clattn_context *context, const struct problem *problem, const struct choice *choice) {
    size_t count = 0;
    if (context->log.level < CLATTN_LOG_DEBUG)
        return;
    for (const struct variant *row = variant_table(&count); row < choice->variant; row++) {
        const char *reason = row->op == problem->op ? variant_pick_refusal(row, &choice->facts, problem) : NULL;
        if (row->op == problem->op)
            log_write(&context->log, CLATTN_LOG_DEBUG, "%s: not %s: %s", variant_op_name(problem->op), row->name,
                      reason != NULL ? reason : "A tuning row prefers another.");
    }
}

/* The variant that a tuning row prefers, where it accepts, else the first of the table that does. */
static const struct variant *pick(const clattn_context *context, const struct problem *problem, bool prefer,
                                  struct choice *out) {
    const struct device_facts *facts = &out->facts;
    const struct variant *preferred = prefer ? tuning_preferred(context->tuning, facts, problem) : NULL;
    out->preferred = preferred != NULL && variant_refusal(preferred, facts, problem) == NULL;
    return out->preferred ? preferred : variant_pick(facts, problem);
}

/* A self-test that fails takes a capability away, and the pick is made again without it. */
static clattn_status take_first(clattn_context *context, const struct problem *problem, bool prefer, bool run_selftest,
                                struct choice *out) {
    char reasons[1024];
    do
        out->variant = pick(context, problem, prefer, out);
    while (out->variant != NULL && run_selftest && !tests_hold(context, out->variant, problem, &out->facts));
    if (out->variant != NULL) {
        log_refusals(context, problem, out);
        return CLATTN_SUCCESS;
    }
    list_refusals(&out->facts, problem, reasons, sizeof reasons);
    return status_set(CLATTN_UNSUPPORTED, "%s: no variant takes this.%s", variant_op_name(problem->op), reasons);
}

/* Does the caller give the parameter, or what says the same in another way? */
static bool is_given(const struct parameters *given, const char *name) {
    static const char *const pairs[][2] = {{"chunk", "splits"}};
    bool found = parameters_have(given, name);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int k = 0; k < 2; k++)
            found |= strcmp(name, pairs[i][k]) == 0 && parameters_have(given, pairs[i][1 - k]);
    return found;
}

/* A row's values stay where the caller gives none, and where there is room: a user's row may name what nobody reads. */
static clattn_status override_parameters(const clattn_context *context, clattn_op_kind op, const char *text,
                                         struct choice *out) {
    const struct parameters row = out->parameters;
    struct parameters given = {0};
    FORWARD(parameters_parse(&given, text));
    for (int i = 0; i < given.count; i++)
        RETURN_IF(!tuning_knows(context->tuning, op, out->variant->name, given.item[i].name), CLATTN_INVALID_ARGUMENT,
                  "parameters: variant %s has no \"%s\"", out->variant->name, given.item[i].name);
    const char *refusal = tuning_refusal(out->variant, &given);
    RETURN_IF(refusal != NULL, CLATTN_INVALID_ARGUMENT, "parameters: %s", refusal);
    out->overridden = given.count > 0;
    out->parameters = given;
    for (int i = 0; i < row.count; i++)
        if (!is_given(&given, row.item[i].name))
            (void)parameters_put(&out->parameters, row.item[i].name, row.item[i].value);
    return CLATTN_SUCCESS;
}

static clattn_status make(clattn_context *context, const struct problem *problem, const clattn_launch *launch,
                          int64_t tuning_size, bool prefer, bool run_selftest, struct choice *out) {
    const char *name = launch != NULL ? launch->variant : NULL;
    const char *parameters = launch != NULL ? launch->parameters : NULL;
    out->facts = selftest_facts(context);
    out->overridden = out->preferred = false;
    if (name != NULL)
        FORWARD(take_named(context, problem, name, run_selftest, out));
    else
        FORWARD(take_first(context, problem, prefer && parameters == NULL, run_selftest, out));
    out->untested = !run_selftest && selftest_is_due(context, relied_on(out->variant, &out->facts));
    const struct tuning_key key = {out->variant->name, problem->op, problem->dtype, tuning_size};
    out->source = tuning_find(context->tuning, &out->facts, &key, &out->parameters);
    return parameters != NULL ? override_parameters(context, problem->op, parameters, out) : CLATTN_SUCCESS;
}

clattn_status choice_make(clattn_context *context, const struct problem *problem, const clattn_launch *launch,
                          int64_t tuning_size, bool run_selftest, struct choice *out) {
    return make(context, problem, launch, tuning_size, true, run_selftest, out);
}

clattn_status choice_make_unpreferred(clattn_context *context, const struct problem *problem,
                                      const clattn_launch *launch, int64_t tuning_size, bool run_selftest,
                                      struct choice *out) {
    return make(context, problem, launch, tuning_size, false, run_selftest, out);
}
