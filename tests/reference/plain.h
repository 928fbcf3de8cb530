/* What plain versions share that have several ways; see plain_attention.c. */
#ifndef CLATTN_PLAIN_H
#define CLATTN_PLAIN_H

#include <stdbool.h>
#include <stdint.h>

/* In which order sums are taken. Number n from PLAIN_EVEN_FIRST on: every n-th term first, then those behind them. */
enum plain_order { PLAIN_UP, PLAIN_DOWN, PLAIN_EVEN_FIRST, PLAIN_ORDERS };

/* The i-th of so many terms in an order; there are more than PLAIN_ORDERS. */
int64_t plain_term(int order, int64_t i, int64_t count);

/* Takes the value where it is the first, or farther from what is right than the one kept. */
void plain_keep(double *kept, double value, double right, bool first);

#endif
