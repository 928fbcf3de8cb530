/* Line charts as SVG: one or two panels over a shared logarithmic x axis. */
#ifndef TOOLS_PLOT_H
#define TOOLS_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#define PLOT_MAX_SERIES 8
#define PLOT_MAX_POINTS 32

struct plot_series {
    char name[48];
    size_t count;
    double x[PLOT_MAX_POINTS], y[PLOT_MAX_POINTS];
};

struct plot_panel {
    const char *title, *unit;
    size_t count;
    struct plot_series series[PLOT_MAX_SERIES];
};

struct plot {
    const char *title;
    char note[160];
    const char *x_label;
    size_t panel_count;
    struct plot_panel panels[2];
};

/* Adds to the named series of a panel, made where it is new; ignored when full. */
void plot_add(struct plot_panel *panel, const char *series, double x, double y);

/* False where the file cannot be written; errno says why. */
bool plot_write(const struct plot *plot, const char *path);

#endif
