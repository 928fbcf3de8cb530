/* SIGINT and SIGTERM in commands that measure for long: the first lets the current measurement finish, so that what has
 * been measured can be printed; the second ends the process at once. */
#ifndef TOOLS_INTERRUPT_H
#define TOOLS_INTERRUPT_H

#include <stdbool.h>

void interrupt_catch(void);
bool interrupt_came(void);
/* Ends the process by the signal that came, so that the caller's shell sees it; returns where none came. */
void interrupt_pass_on(void);

#endif
