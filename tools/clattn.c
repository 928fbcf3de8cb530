/* The command clattn: finds the sub-command and hands it the rest of the line. Each sub-command is one file and reads
 * its own options. */
#include "command.h"
#include "output.h"

#include <clattn/clattn.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"info", command_info, "platforms, devices, and what the library would run on them"},
    {"run", command_run, "one operation on tensors from NumPy files"},
    {"check", command_check, "every variant against the double-precision oracle"},
    {"bench", command_bench, "speed, memory and errors"},
    {"ring", command_ring, "attention over several devices, beside one"},
    {"tune", command_tune, "finds faster tile sizes for a device"},
    {"tune-worker", command_tune_worker, NULL}, /* a process of tune */
};

static const char *current_command = "";

static void print_tagged(const char *format, va_list arguments) {
    fflush(stdout);
    fprintf(stderr, "clattn%s%s: ", *current_command ? " " : "", current_command);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

int complain(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_tagged(format, arguments);
    va_end(arguments);
    if (code == EXIT_USAGE)
        fprintf(stderr, "Try 'clattn%s%s --help'.\n", *current_command ? " " : "", current_command);
    return code;
}

void remark(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_tagged(format, arguments);
    va_end(arguments);
}

static void print_help(FILE *to) {
    fputs("Usage: clattn COMMAND [OPTION]...\n\nAttention kernels for OpenCL devices.\n\n", to);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (commands[i].summary)
            fprintf(to, "  %-7s %s\n", commands[i].name, commands[i].summary);
    fputs("\n  clattn COMMAND --help   options and an example\n  clattn --version\n\n"
          "Exit status: 0 success, 1 a check failed, 2 wrong usage, 3 no device, unsupported, or no room for\n"
          "results.\n\n"
          "Example: clattn check attention --suite quick\n",
          to);
}

int main(int argc, char **argv) {
    /* numbers in npy headers, JSON and SVG never follow the locale */
    setlocale(LC_ALL, "C");
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("clattn %s\n", clattn_version());
        return output_finish(EXIT_OK);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return output_finish(EXIT_OK);
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            current_command = commands[i].name;
            return output_finish(commands[i].run(argc - 2, argv + 2));
        }
    return complain(EXIT_USAGE, "no command '%s'", argv[1]);
}
