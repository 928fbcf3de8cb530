/* Calls of attention that must be refused for the sake of quantised keys and values. */
#include "bad_input.h"

#define K(member) quantized.k_quantization.member
#define V(member) quantized.v_quantization.member
#define F(member) fp8.k_quantization.member
#define PLAIN(member) attention.k_quantization.member

const struct bad_call bad_quantized_calls[] = {
    TENSOR(QUANTIZED, "k_quantization.scales", K(scales)),
    TENSOR(QUANTIZED, "v_quantization.zeros", V(zeros)),

    ROW("codes that reach one byte beyond their buffer", QUANTIZED, INVALID, "k", "369", INT(quantized.k.offset, 258)),
    ROW("int8 one byte beyond its buffer", QUANTIZED, INVALID, "v", "609", INT(quantized.v.offset, 129)),
    ROW("scales one beyond their buffer", QUANTIZED, INVALID, "k_quantization.scales", "306",
        INT(K(scales.offset), 129)),
    ROW("zeros one beyond their buffer", QUANTIZED, INVALID, "v_quantization.zeros", "306", INT(V(zeros.offset), 129)),
    ROW("blocks that lead out of the buffer", QUANTIZED, INVALID, "k", "buffer", INT(K(code_stride), 1000)),
    ROW("a short block of halves that does not fit", QUANTIZED, INVALID, "k", "372", INT(K(nibbles), 1),
        INT(quantized.k.offset, 256)),
    ROW("fp8 one byte beyond its buffer", FP8, INVALID, "k", "609", INT(fp8.k.offset, 129)),

    ROW("blocks of 16", QUANTIZED, INVALID, "k_quantization.block", "16", INT(K(block), 16)),
    ROW("blocks of nothing", QUANTIZED, INVALID, "v_quantization.block", "0", INT(V(block), 0)),
    ROW("blocks of 128", QUANTIZED, INVALID, "v_quantization.block", "128", INT(V(block), 128)),
    ROW("unknown nibbles", QUANTIZED, INVALID, "k_quantization.nibbles", "2", INT(K(nibbles), 2)),
    ROW("nibbles of bytes", QUANTIZED, INVALID, "v_quantization.nibbles", "i8", INT(V(nibbles), 1)),
    ROW("blocks that overlap", QUANTIZED, INVALID, "k_quantization.code_stride", "30", INT(K(code_stride), 30)),
    ROW("blocks backwards", QUANTIZED, INVALID, "v_quantization.code_stride", "-64", INT(V(code_stride), -64)),
    ROW("blocks that begin within a byte", QUANTIZED, INVALID, "k_quantization.code_stride", "33",
        INT(K(code_stride), 33)),
    ROW("blocks beyond 64 bits", QUANTIZED, INVALID, "v_quantization.code_stride", "9223372036854775807",
        INT(V(code_stride), INT64_MAX)),
    ROW("nibbles that begin within a byte", QUANTIZED, INVALID, "k", "129", INT(quantized.k.offset, 129)),
    ROW("heads that begin within a byte", QUANTIZED, INVALID, "k", "81", INT(quantized.k.strides[1], 81)),
    ROW("rows that begin within a byte", QUANTIZED, INVALID, "k", "39", INT(quantized.k.strides[2], 39)),
    ROW("nibbles apart", QUANTIZED, INVALID, "k", "2", INT(quantized.k.strides[3], 2)),
    ROW("int4 of another head dim", QUANTIZED, INVALID, "k", "38", INT(quantized.k.dims[3], 38)),
    ROW("k of bytes", FP8, INVALID, "k", "u8", INT(fp8.k.dtype, CLATTN_U8)),
    ROW("v of bytes", QUANTIZED, INVALID, "v", "u8", INT(quantized.v.dtype, CLATTN_U8)),
    ROW("quantised queries", QUANTIZED, INVALID, "q", "i8", INT(quantized.q.dtype, CLATTN_I8)),
    ROW("a quantised result", QUANTIZED, INVALID, "o", "f8_e4m3", INT(quantized.o.dtype, CLATTN_F8_E4M3)),

    ROW("codes without scales", QUANTIZED, INVALID, "k_quantization.scales", "absent", ABSENT(K(scales))),
    ROW("scales in f32", QUANTIZED, INVALID, "k_quantization.scales", "f32", INT(K(scales.dtype), CLATTN_F32)),
    ROW("zeros in bf16", QUANTIZED, INVALID, "v_quantization.zeros", "bf16", INT(V(zeros.dtype), CLATTN_BF16)),
    ROW("scales of rank 3", QUANTIZED, INVALID, "k_quantization.scales", "3", INT(K(scales.rank), 3)),
    ROW("scales of another batch", QUANTIZED, INVALID, "k_quantization.scales", "1", INT(K(scales.dims[0]), 1)),
    ROW("scales of other heads", QUANTIZED, INVALID, "v_quantization.scales", "2", INT(V(scales.dims[1]), 2)),
    ROW("scales of other rows", QUANTIZED, INVALID, "k_quantization.scales", "1", INT(K(scales.dims[2]), 1)),
    ROW("scales of fewer blocks", QUANTIZED, INVALID, "v_quantization.scales", "1", INT(V(scales.dims[3]), 1)),
    ROW("zeros of more blocks", QUANTIZED, INVALID, "v_quantization.zeros", "3", INT(V(zeros.dims[3]), 3),
        INT(V(zeros.strides[3]), 0)),
    ROW("larger blocks with as many scales", QUANTIZED, INVALID, "k_quantization.scales", "1", INT(K(block), 64)),

    ROW("fp8 in blocks", FP8, INVALID, "k_quantization.block", "32", INT(F(block), 32)),
    ROW("fp8 with nibbles", FP8, INVALID, "k_quantization.nibbles", "1", INT(F(nibbles), 1)),
    ROW("fp8 with a code stride", FP8, INVALID, "k_quantization.code_stride", "64", INT(F(code_stride), 64)),
    ROW("fp8 without scales", FP8, INVALID, "k_quantization.scales", "absent", ABSENT(F(scales))),
    ROW("fp8 with scales in f16", FP8, INVALID, "k_quantization.scales", "f16", INT(F(scales.dtype), CLATTN_F16)),
    ROW("fp8 with other heads' scales", FP8, INVALID, "k_quantization.scales", "2", INT(F(scales.dims[0]), 2)),
    ROW("fp8 with scales of rank 2", FP8, INVALID, "k_quantization.scales", "2", INT(F(scales.rank), 2)),
    ROW("fp8 with zeros", FP8, INVALID, "k_quantization.zeros", "f8_e4m3", INT(F(zeros.memory.kind), 1)),

    ROW("values in blocks", ATTENTION, INVALID, "k_quantization.block", "32", INT(PLAIN(block), 32)),
    ROW("values with nibbles", ATTENTION, INVALID, "k_quantization.nibbles", "1", INT(PLAIN(nibbles), 1)),
    ROW("values with a code stride", ATTENTION, INVALID, "k_quantization.code_stride", "34",
        INT(PLAIN(code_stride), 34)),
    ROW("values with scales", ATTENTION, INVALID, "k_quantization.scales", "f32", INT(PLAIN(scales.memory.kind), 1)),
    ROW("values with zeros", ATTENTION, INVALID, "k_quantization.zeros", "f32", INT(PLAIN(zeros.memory.kind), 1)),

    ROW("lse in the scales' buffer", QUANTIZED, INVALID, "k_quantization.scales", NULL,
        HANDLE(quantized.lse.memory.as.buffer, BUFFER_OF_SCALES), INT(quantized.lse.offset, 33)),
    ROW("lse in the codes' buffer", QUANTIZED, INVALID, "k", NULL,
        HANDLE(quantized.lse.memory.as.buffer, BUFFER_OF_NIBBLES), INT(quantized.lse.offset, 70)),
};

const size_t bad_quantized_call_count = sizeof bad_quantized_calls / sizeof bad_quantized_calls[0];
