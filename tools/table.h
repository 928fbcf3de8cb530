/* A text table whose columns are as wide as their widest cell. */
#ifndef TOOLS_TABLE_H
#define TOOLS_TABLE_H

#include <stddef.h>
#include <stdio.h>

#define TABLE_MAX_COLUMNS 16
#define TABLE_CELL_SIZE 192

struct table {
    size_t columns, rows, capacity;
    unsigned left;                  /* bit c: column c is aligned to the left */
    char (*cells)[TABLE_CELL_SIZE]; /* row by row; the first row is the heading */
};

/* The headings, separated by '|'; one that begins with '<' has its column aligned to the left. */
void table_init(struct table *table, const char *headings);
void table_free(struct table *table);

/* One row, its cells separated by '|'; silently ignored when memory is short. */
void table_add(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

void table_print(const struct table *table, FILE *to);

#endif
