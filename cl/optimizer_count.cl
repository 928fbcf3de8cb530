/* Counts a step that was taken; a single work-item, behind the launches that read the counter. */
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
optimizer_count(global int *steps, global const int *overflow, const long steps_at, const long overflow_at) {
    if ((!overflow || overflow[overflow_at] == 0) && steps[steps_at] < 0x7fffffff)
        steps[steps_at]++;
}
