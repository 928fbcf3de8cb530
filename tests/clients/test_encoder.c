/* The sentence encoder against PyTorch: the same token ids, and embeddings in the same direction, for sentences of very
 * different lengths in ragged batches, in fp32 and in fp16.
 *
 * Usage: test_encoder MODEL_FOLDER SENTENCES_FOLDER; skipped where the model is not there. */
#include "encoder.h"
#include "npy.h"
#include "wordpiece.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_TOKENS = 512, BATCH_TOKENS = 1024, BATCH_SENTENCES = 32, RUNS = 1 };
static const double least_cosine = 0.9999;

struct sentences {
    char *text;
    const char **begin;
    size_t *bytes;
    int count;
};

struct expected {
    int32_t *ids;
    float *embeddings;
    size_t id_count, embedding_count;
};

static char *path_in(const char *folder, const char *file) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return path;
}

static struct sentences read_sentences(const char *path) {
    struct sentences sentences = {0};
    size_t size;
    sentences.text = client_read_file(path, &size);
    for (size_t i = 0; i < size; i++)
        sentences.count += sentences.text[i] == '\n';
    sentences.begin = client_allocate((size_t)sentences.count * sizeof *sentences.begin);
    sentences.bytes = client_allocate((size_t)sentences.count * sizeof *sentences.bytes);
    const char *at = sentences.text;
    for (int i = 0; i < sentences.count; i++) {
        sentences.begin[i] = at;
        sentences.bytes[i] = strcspn(at, "\n");
        at += sentences.bytes[i] + 1;
    }
    return sentences;
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

struct builder {
    int32_t ids[BATCH_TOKENS], positions[BATCH_TOKENS], offsets[BATCH_SENTENCES + 1];
    struct encoder_batch batch;
};

static void add_sentence(struct builder *builder, const int32_t *ids, int32_t length) {
    struct encoder_batch *batch = &builder->batch;
    for (int32_t i = 0; i < length; i++) {
        builder->ids[batch->tokens + i] = ids[i];
        builder->positions[batch->tokens + i] = i;
    }
    batch->tokens += length;
    builder->offsets[++batch->sentences] = (int32_t)batch->tokens;
    batch->longest = length > batch->longest ? length : batch->longest;
}

/* In the order of the file: a batch takes what comes next as long as it fits. */
static void embed_all(struct encoder *encoder, const struct vocabulary *vocabulary, const struct sentences *sentences,
                      float *embeddings) {
    static struct builder builder;
    int32_t ids[MOST_TOKENS];
    int64_t done = 0;
    builder.batch = (struct encoder_batch){builder.ids, builder.positions, builder.offsets, 0, 0, 0};
    for (int i = 0; i <= sentences->count; i++) {
        int32_t length = 0;
        if (i < sentences->count)
            length = wordpiece_ids(vocabulary, sentences->begin[i], sentences->bytes[i], MOST_TOKENS, ids);
        if (i == sentences->count || builder.batch.tokens + length > BATCH_TOKENS ||
            builder.batch.sentences == BATCH_SENTENCES) {
            encoder_run(encoder, &builder.batch, embeddings + done * encoder->shape.hidden);
            done += builder.batch.sentences;
            builder.batch.tokens = builder.batch.sentences = builder.batch.longest = 0;
        }
        if (i < sentences->count)
            add_sentence(&builder, ids, length);
    }
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static void check_ids(const struct vocabulary *vocabulary, const struct sentences *sentences,
                      const struct expected *expected) {
    size_t at = 0;
    for (int i = 0; i < sentences->count; i++) {
        int32_t ids[MOST_TOKENS];
        const int32_t length = wordpiece_ids(vocabulary, sentences->begin[i], sentences->bytes[i], MOST_TOKENS, ids);
        for (int32_t j = 0; j < length; j++, at++)
            if (at >= expected->id_count || ids[j] != expected->ids[at])
                client_fail("sentence %d: token %d is %d, not PyTorch's", i + 1, (int)j, (int)ids[j]);
    }
    if (at != expected->id_count)
        client_fail("%zu tokens in all, not %zu", at, expected->id_count);
}

static double cosine(const float *a, const float *b, int64_t count) {
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < count; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

static void check_embeddings(const float *got, const struct expected *expected, int64_t hidden, int sentences) {
    double least = INFINITY, largest = 0;
    int worst = 0;
    if (expected->embedding_count != (size_t)(sentences * hidden))
        client_fail("PyTorch's embeddings are of other sentences or another model");
    for (int i = 0; i < sentences; i++) {
        const double similarity = cosine(got + i * hidden, expected->embeddings + i * hidden, hidden);
        if (!(similarity >= least)) {
            least = similarity;
            worst = i;
        }
        for (int64_t j = i * hidden; j < (i + 1) * hidden; j++)
            largest = fmax(largest, fabs((double)got[j] - (double)expected->embeddings[j]));
    }
    printf("  least cosine to PyTorch's: 1 - %.2g (sentence %d); largest difference %.2g\n", 1 - least, worst + 1,
           largest);
    if (!(least >= least_cosine))
        client_fail("sentence %d: the cosine is %.7f, less than %.4f", worst + 1, least, least_cosine);
}

/* The first run compiles, and is the one that is checked. */
static void check_dtype(struct client *client, const char *model, clattn_dtype dtype,
                        const struct vocabulary *vocabulary, const struct sentences *sentences,
                        const struct expected *expected) {
    struct encoder encoder;
    encoder_open(&encoder, client, model, dtype, BATCH_TOKENS, BATCH_SENTENCES);
    const int64_t hidden = encoder.shape.hidden;
    float *embeddings = client_allocate((size_t)(sentences->count * hidden) * sizeof(float));
    double best = INFINITY;
    printf("%s\n", dtype == CLATTN_F16 ? "fp16" : "fp32");
    embed_all(&encoder, vocabulary, sentences, embeddings);
    check_embeddings(embeddings, expected, hidden, sentences->count);
    for (int run = 0; run < RUNS; run++) {
        const double start = client_seconds();
        embed_all(&encoder, vocabulary, sentences, embeddings);
        best = fmin(best, client_seconds() - start);
    }
    check_embeddings(embeddings, expected, hidden, sentences->count);
    printf("  %.1f sentences per second, from text to embeddings\n", sentences->count / best);
    free(embeddings);
    encoder_close(&encoder);
}

int main(int argc, char **argv) {
    struct client client;
    struct expected expected;
    if (argc != 3)
        return fprintf(stderr, "usage: %s MODEL_FOLDER SENTENCES_FOLDER\n", argv[0]), EXIT_FAILURE;
    if (access(path_in(argv[1], "model.safetensors"), R_OK) != 0)
        return printf("%s: the model is not there; tools/fetch_encoder.sh gets it\n", argv[1]), CLIENT_SKIPPED;
    client_open(&client);
    struct vocabulary vocabulary = vocabulary_read(path_in(argv[1], "vocab.txt"));
    struct sentences sentences = read_sentences(path_in(argv[2], "sentences.txt"));
    expected.ids = npy_read(path_in(argv[2], "tokens.npy"), "<i4", &expected.id_count);
    expected.embeddings = npy_read(path_in(argv[2], "embeddings.npy"), "<f4", &expected.embedding_count);
    check_ids(&vocabulary, &sentences, &expected);
    printf("%d sentences, %zu tokens: ids are PyTorch's\n", sentences.count, expected.id_count);
    check_dtype(&client, argv[1], CLATTN_F32, &vocabulary, &sentences, &expected);
    check_dtype(&client, argv[1], CLATTN_F16, &vocabulary, &sentences, &expected);
    free(expected.ids), free(expected.embeddings);
    free(sentences.text), free(sentences.begin), free(sentences.bytes);
    vocabulary_free(&vocabulary);
    client_close(&client);
    return EXIT_SUCCESS;
}
