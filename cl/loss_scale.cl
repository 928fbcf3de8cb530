/* A loss scale that grows after steps that went well and shrinks after one that overflowed; a single work-item. The
 * state: the scale's bits, good steps since it last changed, steps that overflowed, steps. */

static inline int count_on(int steps) {
    return steps < 0x7fffffff ? steps + 1 : steps;
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
loss_scale(global int *state, global const int *overflow, const long state_at, const long overflow_at,
           const int restart, const int interval, const float initial, const float growth, const float backoff,
           const float least, const float most) {
    const bool bad = !restart && overflow[overflow_at] != 0;
    float scale = restart ? initial : as_float(state[state_at]);
    int good = restart ? 0 : state[state_at + 1];
    const int overflows = restart ? 0 : state[state_at + 2], steps = restart ? 0 : state[state_at + 3];
    if (!restart) {
        good = bad ? 0 : count_on(good);
        scale = bad ? max(scale * backoff, least) : good >= interval ? min(scale * growth, most) : scale;
        good = good >= interval ? 0 : good;
    }
    state[state_at] = as_int(scale);
    state[state_at + 1] = good;
    state[state_at + 2] = bad ? count_on(overflows) : overflows;
    state[state_at + 3] = restart ? 0 : count_on(steps);
}
