/* The self-tests themselves, as a table: tiny kernels of each capability, what it is fed and how its answer is judged.
 * A new capability with a test is a kernel in cl/ and a row here.
 *
 * Every test kernel takes two buffers, (const __global uchar *in, __global uchar *out), and runs once. */
#ifndef CLATTN_SELFTEST_TRIALS_H
#define CLATTN_SELFTEST_TRIALS_H

#include "device.h"

struct selftest_trial {
    enum device_capability cap;
    const char *file, *kernel;
    size_t in_size, out_size; /* bytes */
    size_t groups;
    /* Work-items of a group, at most limit. */
    size_t (*items)(const struct device_facts *facts, size_t limit);
    void (*options)(const struct device_facts *facts, char *text, size_t size);
    void (*fill)(const struct device_facts *facts, void *in);
    bool (*holds)(const struct device_facts *facts, size_t items, const void *in, const void *out);
};

/* The capability's next trial behind `after` (NULL: its first); NULL where there is none. All must hold. */
const struct selftest_trial *selftest_trial_next(enum device_capability cap, const struct selftest_trial *after);

#endif
