/* Deals rows out to work-items. On GPUs a row in registers is 16 to 32 floats a work-item in packets of 16 bytes, so
 * that several loads are in flight; on CPUs a work-item owns whole rows and packets are vectors. Sizes are powers of
 * two, cut down to what the device can launch. */
#include "softmax_plan.h"
#include "check.h"
#include "status.h"
#include <string.h>

enum {
    PACKET_BYTES = 16,
    GROUP_FLOATS = 16,     /* per work-item, while more work-items can be had */
    LANE_PACKETS = 4,      /* per lane, before a row gets more lanes */
    UNROLLED_PACKETS = 32, /* work-items with more count them */
    LOCAL_LANES = 16,      /* lanes of a sub-group that is made of local memory, where the device names no size */
    TICKET_GROUP = 256,
    HELD_WORDS = 32,     /* of a chunk's elements, per work-item: four groups of 256 share a compute unit's registers */
    HELD_COLUMNS = 1024, /* of the shortest chunk that is chosen here */
    HELD_PACKETS = 128,  /* on CPUs: more would be added up one by one */
    MOST_PACKETS = 1024,
    PACKED_FLOATS = 32,    /* that a work-item would hold else */
    PATIENCE = 1024,       /* about a millisecond */
    MAX_LANES_STRIDED = 64 /* columns that one work-item keeps of a row with strides */
};

/* ---- where rows lie ---------------------------------------------------------------------------------------------- */

struct outer_dim {
    int64_t size, x, y, l, mask, bias;
};

static bool steps_over(int64_t slow, int64_t fast, int64_t size) {
    const int64_t factors[] = {fast, size};
    return slow == check_product(factors, 2);
}

static bool merges(const struct outer_dim *slow, const struct outer_dim *fast) {
    return steps_over(slow->x, fast->x, fast->size) && steps_over(slow->y, fast->y, fast->size) &&
           steps_over(slow->l, fast->l, fast->size) && steps_over(slow->mask, fast->mask, fast->size) &&
           steps_over(slow->bias, fast->bias, fast->size);
}

/* 0 where the tensor is absent, or repeated along the dim. */
static int64_t stride_of(const clattn_tensor *tensor, int dim) {
    return tensor != NULL && tensor->dims[dim] != 1 ? tensor->strides[dim] : 0;
}

/* The dims but the axis; where `merge`, without those of size 1, and with neighbours that walk on evenly in all tensors
 * made one. */
static int collect_outer(const struct softmax_tensors *tensors, int axis, bool merge, struct outer_dim *outer) {
    const clattn_tensor *x = tensors->x;
    int count = 0;
    for (int i = 0; i < x->rank; i++) {
        const struct outer_dim dim = {x->dims[i],
                                      x->strides[i],
                                      tensors->y->strides[i],
                                      tensors->l != NULL ? tensors->l->strides[i] : 0,
                                      stride_of(tensors->mask, i),
                                      stride_of(tensors->bias, i)};
        if (i == axis || (merge && dim.size == 1))
            continue;
        if (merge && count > 0 && merges(&outer[count - 1], &dim)) {
            const int64_t sizes[] = {outer[count - 1].size, dim.size};
            outer[count - 1] = dim;
            outer[count - 1].size = check_product(sizes, 2);
        } else {
            outer[count++] = dim;
        }
    }
    return count;
}

static bool is_aligned(int64_t elements, clattn_dtype dtype) {
    return elements % PACKET_BYTES * (int64_t)clattn_dtype_size(dtype) % PACKET_BYTES == 0;
}

static bool rows_aligned(const struct softmax_rows *rows) {
    const struct softmax_layout *layout = &rows->layout;
    bool aligned = is_aligned(layout->x_offset, rows->x_dtype);
    if (rows->writes_row)
        aligned = aligned && is_aligned(layout->y_offset, rows->y_dtype);
    for (int i = 3 - rows->outer; i < 3; i++) {
        aligned = aligned && is_aligned(layout->x_stride[i], rows->x_dtype);
        if (rows->writes_row)
            aligned = aligned && is_aligned(layout->y_stride[i], rows->y_dtype);
    }
    return aligned;
}

static void number_rows(const struct outer_dim *outer, int count, struct softmax_rows *rows) {
    struct softmax_layout *layout = &rows->layout;
    rows->outer = count > 0 ? count : 1;
    for (int i = 0; i < 3; i++)
        layout->dim[i] = 1;
    for (int i = 0; i < count; i++) {
        const int at = 3 - count + i;
        layout->dim[at] = outer[i].size;
        layout->x_stride[at] = outer[i].x;
        layout->y_stride[at] = outer[i].y;
        layout->l_stride[at] = outer[i].l;
        layout->mask_stride[at] = outer[i].mask;
        layout->bias_stride[at] = outer[i].bias;
    }
    layout->rows = check_product(layout->dim, 3);
}

static void describe_rows(const clattn_tensor *x, const clattn_tensor *y, int axis, bool writes_row,
                          struct softmax_rows *rows) {
    struct softmax_layout *layout = &rows->layout;
    *rows = (struct softmax_rows){.x_dtype = x->dtype, .y_dtype = y->dtype, .writes_row = writes_row};
    layout->columns = x->dims[axis];
    layout->x_offset = x->offset;
    layout->y_offset = y->offset;
    layout->x_step = x->strides[axis];
    layout->y_step = y->strides[axis];
    rows->dense = layout->columns <= 1 || (layout->x_step == 1 && (!writes_row || layout->y_step == 1));
}

void softmax_rows_of(const struct softmax_tensors *tensors, int axis, bool writes_row, struct softmax_rows *rows) {
    struct outer_dim outer[CLATTN_MAX_RANK];
    struct softmax_layout *layout = &rows->layout;
    describe_rows(tensors->x, tensors->y, axis, writes_row, rows);
    number_rows(outer, collect_outer(tensors, axis, true, outer), rows);
    layout->l_offset = tensors->l != NULL ? tensors->l->offset : 0;
    layout->mask_offset = tensors->mask != NULL ? tensors->mask->offset : 0;
    layout->mask_step = stride_of(tensors->mask, axis);
    layout->bias_offset = tensors->bias != NULL ? tensors->bias->offset : 0;
    layout->bias_step = stride_of(tensors->bias, axis);
    rows->aligned = rows->dense && rows_aligned(rows);
}

void softmax_rows_unmerged(const clattn_tensor *x, const clattn_tensor *y, struct softmax_rows *rows) {
    struct outer_dim outer[CLATTN_MAX_RANK];
    describe_rows(x, y, 3, true, rows);
    const struct softmax_tensors tensors = {.x = x, .y = y};
    number_rows(outer, collect_outer(&tensors, 3, false, outer), rows);
    rows->aligned = rows->dense && rows_aligned(rows);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* A CPU's ways, unless the mask hides that it is one. */
static bool is_cpu(const struct device_facts *facts) {
    return (facts->caps & CAP_BIT(CAP_CPU)) != 0;
}

static bool is_power_of_2(int64_t n) {
    return n > 0 && (n & (n - 1)) == 0;
}

/* The largest power of two up to n; 1 where there is none. */
static int floor_power(int64_t n) {
    int power = 1;
    while (2 * (int64_t)power <= n)
        power *= 2;
    return power;
}

static int group_limit(const struct device_facts *facts) {
    const uint32_t most = facts->max_group < facts->max_item[0] ? facts->max_group : facts->max_item[0];
    return floor_power(most > 1024 ? 1024 : most);
}

/* Lanes that a row may have in one sub-group. */
static int lane_limit(const struct device_facts *facts) {
    const int lanes = facts->subgroup_size > 1 ? floor_power(facts->subgroup_size) : LOCAL_LANES;
    return lanes < group_limit(facts) ? lanes : group_limit(facts);
}

/* Shuffles take whole sub-groups of the device's size. Elsewhere lanes meet in local memory, and a work-item alone
 * meets nobody. */
enum subgroup_backend softmax_plan_backend(const struct device_facts *facts, int team, int group) {
    const bool whole = (int)facts->subgroup_size == lane_limit(facts) && group % (int)facts->subgroup_size == 0;
    return team > 1 && whole ? facts->subgroup : SUBGROUP_LOCAL;
}

static int choose_vector(const struct device_facts *facts, const struct softmax_rows *rows) {
    const bool both_short = rows->x_dtype != CLATTN_F32 && (!rows->writes_row || rows->y_dtype != CLATTN_F32);
    const int vector = is_cpu(facts) || both_short ? 8 : 4;
    const bool worth = rows->dense && rows->layout.columns >= vector && (rows->aligned || is_cpu(facts));
    return worth ? vector : 1;
}

/* The smallest power of two of work-items that have at most `most` of the row's packets each. */
static int share(int64_t packets, int64_t most, int limit) {
    int items = 1;
    while (items < limit && divide_up(packets, items) > most)
        items *= 2;
    return items;
}

/* Lanes of a row that fits a sub-group. */
static int choose_lanes(const struct device_facts *facts, const struct softmax_rows *rows, int64_t packets,
                        int vector) {
    if (is_cpu(facts) && facts->subgroup_size <= 1)
        return 1;
    const int most = !rows->dense ? MAX_LANES_STRIDED : vector == 1 ? LANE_PACKETS / 2 : LANE_PACKETS;
    return share(packets, most, lane_limit(facts));
}

/* Work-items of a row that has a work-group of its own. */
static int choose_group(const struct device_facts *facts, int64_t packets, int vector) {
    if (is_cpu(facts))
        return 1;
    const int least = group_limit(facts) < 128 ? group_limit(facts) : 128;
    const int wanted = share(packets, GROUP_FLOATS / vector, group_limit(facts));
    return wanted > least ? wanted : least;
}

/* Work-items of a row whose largest elements are sought: whole sub-groups, few enough that several groups share a
 * compute unit and wait at different barriers. */
static int choose_select_group(const struct device_facts *facts, int64_t packets) {
    if (is_cpu(facts))
        return 1;
    const int limit = group_limit(facts) < TICKET_GROUP ? group_limit(facts) : TICKET_GROUP;
    const int wanted = share(packets, LANE_PACKETS, limit);
    const int least = lane_limit(facts) < limit ? lane_limit(facts) : limit;
    return wanted > least ? wanted : least;
}

/* Work-items of rows that are looped over: few lanes for short rows, a group for long ones. */
static int choose_loop_team(const struct device_facts *facts, const struct softmax_rows *rows, int64_t packets,
                            int vector) {
    const int limit = group_limit(facts) < 256 ? group_limit(facts) : 256;
    const bool columns_apart = !rows->dense && rows->layout.rows >= 1024 * (int64_t)facts->compute_units;
    int team = is_cpu(facts) || columns_apart ? 1 : choose_lanes(facts, rows, packets, vector);
    if (team == lane_limit(facts) && divide_up(packets, team) > LANE_PACKETS && !is_cpu(facts))
        team = limit;
    return divide_up(packets, team) > SOFTMAX_ITERATIONS ? group_limit(facts) : team;
}

/* Work-items of a group whose teams are lanes. */
static int choose_lane_group(const struct device_facts *facts, const struct softmax_rows *rows, int team) {
    const int limit = group_limit(facts);
    const bool few = rows->layout.rows < 64 * (int64_t)facts->compute_units;
    const bool shuffles = facts->subgroup != SUBGROUP_LOCAL && team > 1;
    const int wanted = !is_cpu(facts) ? 128 : few ? 1 : 16;
    const int least = shuffles ? lane_limit(facts) : team;
    const int group = wanted < limit ? wanted : limit;
    return group > least ? group : least;
}

/* Rounds up to 1, 2, 3, 4, 6, 8, 12, 16, ..: fewer programs for many lengths. */
static int round_unrolled(int64_t packets) {
    int64_t size = 1;
    while (size < packets)
        size = is_power_of_2(size) && size > 1 ? size + size / 2 : is_power_of_2(size) ? 2 : size / 3 * 4;
    return (int)size;
}

/* Room for a number of packets that is counted at run time. */
static int round_counted(int64_t packets) {
    int64_t size = 16;
    while (size < packets)
        size *= 8;
    return (int)size;
}

/* On a CPU one program serves all lengths of a range: unaligned vectors cost nothing there, and a loop over packets is
 * as good as many copies of its body. */
static void plan_packets(const struct device_facts *facts, const struct softmax_rows *rows, int64_t packets,
                         struct softmax_plan *plan) {
    plan->unrolled = !is_cpu(facts) && packets <= UNROLLED_PACKETS;
    plan->packets = plan->unrolled ? round_unrolled(packets) : round_counted(packets);
    plan->aligned = rows->aligned && !is_cpu(facts);
    plan->partial = plan->vector > 1 && (is_cpu(facts) || rows->layout.columns % plan->vector != 0);
}

static void cut_rows(const struct device_facts *facts, const struct softmax_rows *rows, struct softmax_plan *plan) {
    const int64_t step = (int64_t)plan->group * plan->vector;
    const int64_t groups = (int64_t)facts->compute_units * (is_cpu(facts) ? 4 : 8);
    const int64_t wanted = divide_up(groups, rows->layout.rows > 0 ? rows->layout.rows : 1);
    const int64_t least = is_cpu(facts) ? 64 * step : 4 * step;
    int64_t chunk = divide_up(divide_up(rows->layout.columns, wanted), step) * step;
    chunk = chunk < least ? least : chunk;
    plan->chunk = chunk > SOFTMAX_ITERATIONS * step ? SOFTMAX_ITERATIONS * step : chunk;
    plan->splits = rows->layout.columns > 0 ? divide_up(rows->layout.columns, plan->chunk) : 1;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static clattn_status take(const struct parameters *parameters, const char *name, int limit, int *value) {
    const int given = parameters_get(parameters, name, 0);
    if (given == 0)
        return CLATTN_SUCCESS;
    RETURN_IF(!is_power_of_2(given) || given > limit, CLATTN_INVALID_ARGUMENT,
              "parameters: %s = %d is not a power of two up to %d", name, given, limit);
    *value = given;
    return CLATTN_SUCCESS;
}

/* Chunks of a few blocks, and as many of them between state and result as the last-level cache surely holds. */
static clattn_status cut_tickets(const struct softmax_rows *rows, const struct parameters *parameters,
                                 struct softmax_plan *plan) {
    enum { BLOCK = 4 }; /* packets, as cl/row_share.clh has it */
    int blocks = 2, lag = 8;
    FORWARD(take(parameters, "blocks", 64, &blocks));
    FORWARD(take(parameters, "lag", 64, &lag));
    plan->chunk = (int64_t)blocks * BLOCK * plan->group * plan->vector;
    plan->splits = divide_up(rows->layout.columns, plan->chunk);
    const int64_t bytes = plan->chunk * (int64_t)clattn_dtype_size(rows->x_dtype);
    const int64_t wanted = divide_up((int64_t)lag << 20, bytes), chunks = rows->layout.rows * plan->splits;
    plan->lag = wanted > plan->splits ? wanted : plan->splits;
    plan->lag = plan->lag < chunks ? plan->lag : chunks;
    return CLATTN_SUCCESS;
}

/* Elements that are held as they are stored take half the registers. */
static bool holds_packed(const struct softmax_rows *rows, enum schedule schedule, const struct softmax_plan *plan) {
    const bool narrow = clattn_dtype_size(rows->x_dtype) == 2 && plan->vector == 8;
    return narrow &&
           (schedule == SCHEDULE_HELD || (schedule == SCHEDULE_GROUP && plan->packets * plan->vector >= PACKED_FLOATS));
}

static int choose_held_packets(const struct device_facts *facts, const struct softmax_plan *plan) {
    int packets = is_cpu(facts) ? HELD_PACKETS : plan->packed ? HELD_WORDS / 4 : HELD_WORDS / plan->vector;
    while (packets * plan->vector * plan->group < HELD_COLUMNS)
        packets *= 2;
    return packets;
}

/* Some of a chunk's packets lie in local memory: no more than there are, and than it has room for. (A tuning row's
 * number meets packets and groups that a caller asks for.) */
static clattn_status take_local_packets(const struct device_facts *facts, const struct parameters *parameters,
                                        int packets, struct softmax_plan *plan) {
    enum { SPARE = 2048 }; /* bytes for reductions */
    const uint64_t bytes = (plan->packed ? 2u : 4u) * (uint64_t)plan->vector * (uint64_t)plan->group;
    FORWARD(take(parameters, "local_packets", MOST_PACKETS, &plan->local_packets));
    if (plan->local_packets > packets)
        plan->local_packets = packets;
    while (plan->local_packets > 0 && (uint64_t)plan->local_packets * bytes + SPARE > facts->local_memory)
        plan->local_packets /= 2;
    return CLATTN_SUCCESS;
}

/* Chunks that a work-group holds. */
static clattn_status cut_held(const struct device_facts *facts, const struct softmax_rows *rows,
                              const struct parameters *parameters, struct softmax_plan *plan) {
    plan->packed = holds_packed(rows, SCHEDULE_HELD, plan);
    int packets = choose_held_packets(facts, plan);
    plan->patience = PATIENCE;
    FORWARD(take(parameters, "packets", MOST_PACKETS, &packets));
    FORWARD(take(parameters, "patience", 1 << 20, &plan->patience));
    plan_packets(facts, rows, packets, plan);
    FORWARD(take_local_packets(facts, parameters, packets, plan));
    plan->chunk = (int64_t)packets * plan->group * plan->vector;
    plan->splits = rows->layout.columns > 0 ? divide_up(rows->layout.columns, plan->chunk) : 1;
    RETURN_IF((double)rows->layout.rows * (double)plan->splits > UINT32_MAX, CLATTN_INVALID_ARGUMENT,
              "parameters: packets = %d makes more chunks than there are tickets", packets);
    return CLATTN_SUCCESS;
}

static clattn_status take_vector(const struct softmax_rows *rows, const struct device_facts *facts,
                                 const struct parameters *parameters, int *vector) {
    *vector = choose_vector(facts, rows);
    FORWARD(take(parameters, "vector", 8, vector));
    RETURN_IF(*vector == 2, CLATTN_INVALID_ARGUMENT, "parameters: vector = 2 is not 1, 4 or 8");
    if (!rows->dense)
        *vector = 1;
    return CLATTN_SUCCESS;
}

clattn_status softmax_plan_make(const struct device_facts *facts, enum schedule schedule,
                                const struct softmax_rows *rows, const struct parameters *parameters,
                                struct softmax_plan *plan) {
    memset(plan, 0, sizeof *plan);
    FORWARD(take_vector(rows, facts, parameters, &plan->vector));
    const int64_t packets = divide_up(rows->layout.columns, plan->vector);
    const bool loops = schedule == SCHEDULE_ONLINE || schedule == SCHEDULE_THREE_PASS;
    if (schedule == SCHEDULE_SUBGROUP)
        plan->team = choose_lanes(facts, rows, packets, plan->vector);
    else if (loops)
        plan->team = choose_loop_team(facts, rows, packets, plan->vector);
    else if (schedule == SCHEDULE_TICKETS || schedule == SCHEDULE_HELD)
        plan->team = is_cpu(facts) ? 1 : group_limit(facts) < TICKET_GROUP ? group_limit(facts) : TICKET_GROUP;
    else
        plan->team = choose_group(facts, packets, plan->vector);
    if (schedule == SCHEDULE_SELECT)
        plan->team = choose_select_group(facts, packets);
    const bool tickets = schedule == SCHEDULE_TICKETS, cut = tickets || schedule == SCHEDULE_SPLIT;
    const bool held = schedule == SCHEDULE_HELD;
    const bool whole_group = schedule == SCHEDULE_GROUP || schedule == SCHEDULE_SELECT || cut || held;
    if (!whole_group)
        FORWARD(take(parameters, "team", loops ? group_limit(facts) : lane_limit(facts), &plan->team));
    plan->group =
        whole_group || plan->team > lane_limit(facts) ? plan->team : choose_lane_group(facts, rows, plan->team);
    FORWARD(take(parameters, "group", group_limit(facts), &plan->group));
    if (whole_group || plan->team > lane_limit(facts) || plan->team > plan->group)
        plan->team = plan->group;
    plan->backend = softmax_plan_backend(facts, plan->team, plan->group);
    plan->registers = plan->backend == SUBGROUP_NVIDIA ? parameters_get(parameters, "registers", 0) : 0;
    const bool is_local = plan->backend == SUBGROUP_LOCAL;
    plan->subgroup = !is_local || plan->team > lane_limit(facts) ? lane_limit(facts) : plan->team;
    if (held)
        return cut_held(facts, rows, parameters, plan);
    plan_packets(facts, rows, divide_up(packets, plan->team), plan);
    plan->packed = holds_packed(rows, schedule, plan);
    if (loops || cut || schedule == SCHEDULE_SELECT)
        plan->packets = 1;
    if (tickets)
        return cut_tickets(rows, parameters, plan);
    cut_rows(facts, rows, plan);
    return CLATTN_SUCCESS;
}
