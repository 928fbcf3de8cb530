/* Does the device compute what it promises? Each testable capability is tried once per context with a tiny kernel from
 * cl/ that runs the real back-end file, before the first call of a variant that needs it; the verdict is kept in the
 * binary cache's folder by device, driver and library version. A capability that fails is taken from the facts and
 * logged. The test uses a temporary queue and buffers, released before it returns. */
#ifndef CLATTN_SELFTEST_H
#define CLATTN_SELFTEST_H

#include "device.h"
#include "os.h"

enum selftest_verdict { SELFTEST_UNTESTED, SELFTEST_PASSED, SELFTEST_FAILED };

struct selftest {
    os_mutex lock;
    enum selftest_verdict verdict[CAP_COUNT]; /* written under the lock, read atomically without it */
    bool stored_read;                         /* the verdicts on disk have been looked at */
};

void selftest_init(struct selftest *selftest);
void selftest_free(struct selftest *selftest);

/* Tests those of the capabilities in `needs` that are still untested and have a test. True where all of `needs` hold.
 */
bool selftest_passes(clattn_context *context, uint64_t needs);

/* True where one of them has a test that has not run. */
bool selftest_is_due(const clattn_context *context, uint64_t needs);

/* "passed", "failed", "untested", or "absent" where the device does not have it. */
const char *selftest_verdict_name(clattn_context *context, enum device_capability cap);

/* The facts with failed capabilities taken away. */
struct device_facts selftest_facts(clattn_context *context);

#endif
