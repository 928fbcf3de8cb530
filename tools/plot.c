/* Writes SVG by hand: axes with round ticks, one colour and marker per series, a legend in the panel's margin. Colours
 * are told apart by people with colour-blindness too (the Okabe-Ito palette). */
#include "plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PANEL_WIDTH 470.0
#define PANEL_HEIGHT 300.0
#define LEFT 70.0
#define TOP 86.0
#define GAP 110.0
#define LEGEND_LINE 18.0
#define BOTTOM 60.0

static const char *const colours[PLOT_MAX_SERIES] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                     "#e69f00", "#56b4e9", "#000000", "#999999"};

struct axes {
    double left, x_low, x_high, y_high, y_step;
};

void plot_add(struct plot_panel *panel, const char *name, double x, double y) {
    size_t s = 0;
    while (s < panel->count && strcmp(panel->series[s].name, name) != 0)
        s++;
    if (s == PLOT_MAX_SERIES || !isfinite(x) || !isfinite(y) || x <= 0)
        return;
    struct plot_series *series = &panel->series[s];
    if (s == panel->count) {
        *series = (struct plot_series){.count = 0};
        snprintf(series->name, sizeof series->name, "%s", name);
        panel->count++;
    }
    size_t at = series->count;
    if (at == PLOT_MAX_POINTS)
        return;
    for (; at > 0 && series->x[at - 1] > x; at--) {
        series->x[at] = series->x[at - 1];
        series->y[at] = series->y[at - 1];
    }
    series->x[at] = x;
    series->y[at] = y;
    series->count++;
}

static void escape(FILE *file, const char *text) {
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '<')
            fputs("&lt;", file);
        else if (c == '&')
            fputs("&amp;", file);
        else if (c >= ' ' && c < 127)
            fputc(c, file);
        else
            fputc('?', file);
    }
}

static void put_text(FILE *file, double x, double y, const char *attributes, const char *text) {
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
    escape(file, text);
    fputs("</text>\n", file);
}

/* 1, 2 or 5 times a power of ten, at least range / 5 */
static double round_step(double range) {
    const double power = pow(10, floor(log10(range / 5)));
    const double factor = range / 5 / power;
    return power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
}

static struct axes axes_of(const struct plot *plot, const struct plot_panel *panel, size_t index) {
    struct axes axes = {.left = LEFT + (double)index * (PANEL_WIDTH + GAP), .x_low = INFINITY, .x_high = 0};
    double y_high = 0;
    for (size_t p = 0; p < plot->panel_count; p++)
        for (size_t s = 0; s < plot->panels[p].count; s++) {
            const struct plot_series *series = &plot->panels[p].series[s];
            axes.x_low = fmin(axes.x_low, series->x[0]);
            axes.x_high = fmax(axes.x_high, series->x[series->count - 1]);
        }
    for (size_t s = 0; s < panel->count; s++)
        for (size_t i = 0; i < panel->series[s].count; i++)
            y_high = fmax(y_high, panel->series[s].y[i]);
    if (!(axes.x_low <= axes.x_high))
        axes.x_low = axes.x_high = 1;
    if (axes.x_low >= axes.x_high) {
        axes.x_low /= 2;
        axes.x_high *= 2;
    }
    axes.y_step = round_step(y_high > 0 ? y_high : 1);
    axes.y_high = axes.y_step * ceil((y_high > 0 ? y_high : 1) / axes.y_step);
    return axes;
}

static double x_at(const struct axes *axes, double x) {
    return axes->left + PANEL_WIDTH * log(x / axes->x_low) / log(axes->x_high / axes->x_low);
}

static double y_at(const struct axes *axes, double y) {
    return TOP + PANEL_HEIGHT * (1 - y / axes->y_high);
}

static void put_axes(FILE *file, const struct plot *plot, const struct plot_panel *panel, const struct axes *axes) {
    char label[32];
    for (double y = 0; y <= axes->y_high * 1.0001; y += axes->y_step) {
        fprintf(file, "<path d=\"M%.1f %.1fh%.1f\" stroke=\"%s\"/>\n", axes->left, y_at(axes, y), PANEL_WIDTH,
                y > 0 ? "#dddddd" : "#333333");
        snprintf(label, sizeof label, "%g", y);
        put_text(file, axes->left - 8, y_at(axes, y) + 4, "text-anchor=\"end\"", label);
    }
    /* powers of two, or every second one where there are many */
    const double low = ceil(log2(axes->x_low) - 1e-9), high = floor(log2(axes->x_high) + 1e-9);
    const double step = fmax(1, ceil((high - low) / 10));
    for (double e = low; e <= high; e += step) {
        const double x = x_at(axes, exp2(e));
        fprintf(file, "<path d=\"M%.1f %.1fv5\" stroke=\"#333333\"/>\n", x, TOP + PANEL_HEIGHT);
        snprintf(label, sizeof label, "%g", exp2(e));
        put_text(file, x, TOP + PANEL_HEIGHT + 20, "text-anchor=\"middle\"", label);
    }
    put_text(file, axes->left, TOP - 14, "font-weight=\"bold\"", panel->title);
    snprintf(label, sizeof label, "%s", panel->unit);
    put_text(file, axes->left + PANEL_WIDTH, TOP - 14, "text-anchor=\"end\" fill=\"#555555\"", label);
    put_text(file, axes->left + PANEL_WIDTH / 2, TOP + PANEL_HEIGHT + 42, "text-anchor=\"middle\"", plot->x_label);
}

static void put_series(FILE *file, const struct plot_panel *panel, const struct axes *axes, size_t s) {
    const struct plot_series *series = &panel->series[s];
    fprintf(file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colours[s]);
    for (size_t i = 0; i < series->count; i++)
        fprintf(file, "%s%.1f,%.1f", i ? " " : "", x_at(axes, series->x[i]), y_at(axes, series->y[i]));
    fputs("\"/>\n", file);
    for (size_t i = 0; i < series->count; i++) {
        fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"><title>", x_at(axes, series->x[i]),
                y_at(axes, series->y[i]), colours[s]);
        escape(file, series->name);
        fprintf(file, ", %g: %.4g %s</title></circle>\n", series->x[i], series->y[i], panel->unit);
    }
    const double y = TOP + PANEL_HEIGHT + BOTTOM + LEGEND_LINE * (double)s;
    fprintf(file, "<path d=\"M%.1f %.1fh22\" stroke=\"%s\" stroke-width=\"2\"/>\n", axes->left, y, colours[s]);
    put_text(file, axes->left + 30, y + 4, "", series->name);
}

bool plot_write(const struct plot *plot, const char *path) {
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    size_t lines = 0;
    for (size_t p = 0; p < plot->panel_count; p++)
        lines = plot->panels[p].count > lines ? plot->panels[p].count : lines;
    const double width = LEFT + (double)plot->panel_count * (PANEL_WIDTH + GAP) - GAP + 30;
    const double height = TOP + PANEL_HEIGHT + BOTTOM + LEGEND_LINE * (double)lines + 10;
    fprintf(file,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
            "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            width, height, width, height);
    put_text(file, LEFT, 24, "font-size=\"16\" font-weight=\"bold\"", plot->title);
    put_text(file, LEFT, 42, "fill=\"#555555\"", plot->note);
    for (size_t p = 0; p < plot->panel_count; p++) {
        const struct axes axes = axes_of(plot, &plot->panels[p], p);
        put_axes(file, plot, &plot->panels[p], &axes);
        for (size_t s = 0; s < plot->panels[p].count; s++)
            put_series(file, &plot->panels[p], &axes, s);
    }
    fputs("</svg>\n", file);
    const bool written = !ferror(file);
    return fclose(file) == 0 && written;
}
