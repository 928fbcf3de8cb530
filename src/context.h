/* The context's inside. */
#ifndef CLATTN_CONTEXT_H
#define CLATTN_CONTEXT_H

#include "binary_cache.h"
#include "device.h"
#include "log.h"
#include "memo.h"
#include "program.h"
#include "selftest.h"
#include "tuning.h"

struct clattn_context {
    cl_context cl;
    cl_device_id device;
    struct device_facts facts;
    struct log log;
    char *cl_dir; /* NULL: embedded sources */
    char *tuning_path;
    struct binary_cache cache;
    struct program_table programs;
    struct memo memo; /* plans by kind of problem */
    struct tuning *tuning;
    struct selftest selftest;
    uint64_t launches; /* updated atomically */
};

#endif
