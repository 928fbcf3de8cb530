/* Text tables. Rows are kept until the end, when the widths are known. */
#include "table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void add_row(struct table *table, const char *text) {
    if (table->rows == table->capacity) {
        const size_t capacity = table->capacity ? 2 * table->capacity : 32;
        void *larger = realloc(table->cells, capacity * table->columns * sizeof *table->cells);
        if (!larger)
            return;
        table->cells = larger;
        table->capacity = capacity;
    }
    char(*row)[TABLE_CELL_SIZE] = table->cells + table->rows++ * table->columns;
    for (size_t c = 0; c < table->columns; c++) {
        const size_t length = strcspn(text, "|");
        const size_t kept = length < TABLE_CELL_SIZE - 1 ? length : TABLE_CELL_SIZE - 1;
        memcpy(row[c], text, kept);
        row[c][kept] = '\0';
        text += length + (text[length] == '|');
    }
}

void table_init(struct table *table, const char *headings) {
    char plain[TABLE_MAX_COLUMNS * TABLE_CELL_SIZE];
    size_t length = 0;
    *table = (struct table){.columns = 1};
    for (const char *c = headings; *c && length + 1 < sizeof plain; c++) {
        table->columns += *c == '|';
        if (*c == '<')
            table->left |= 1u << (table->columns - 1);
        else
            plain[length++] = *c;
    }
    plain[length] = '\0';
    add_row(table, plain);
}

void table_free(struct table *table) {
    free(table->cells);
    *table = (struct table){.cells = NULL};
}

void table_add(struct table *table, const char *format, ...) {
    char text[TABLE_MAX_COLUMNS * TABLE_CELL_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    add_row(table, text);
}

static void print_row(const struct table *table, const size_t *widths, size_t r, FILE *to) {
    for (size_t c = 0; c < table->columns; c++) {
        const char *cell = table->cells[r * table->columns + c];
        const int width = table->left & 1u << c ? -(int)widths[c] : (int)widths[c];
        if (c + 1 < table->columns)
            fprintf(to, "%*s  ", width, cell);
        else
            fprintf(to, "%*s", width > 0 ? width : 0, cell);
    }
    fputc('\n', to);
}

void table_print(const struct table *table, FILE *to) {
    size_t widths[TABLE_MAX_COLUMNS] = {0};
    for (size_t i = 0; i < table->rows * table->columns; i++) {
        const size_t length = strlen(table->cells[i]);
        if (length > widths[i % table->columns])
            widths[i % table->columns] = length;
    }
    for (size_t r = 0; r < table->rows; r++)
        print_row(table, widths, r, to);
}
