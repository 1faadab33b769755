// SPDX-License-Identifier: Apache-2.0 OR MIT
// One's complement sums (RFC 1071) in 64 bits, as macros: actions with parameters are copied into each place anyway.
//
// A sum has to begin with a value that the action of a table has written. Otherwise the compilers put the expression of
// each step into the next one: each step would double the code.

#define ADD32(s, x) s = s + (bit<64>)(x)
#define ADD64(s, x) \
    s = s + ((x) & 0xffffffff); \
    s = s + ((x) >> 32)
// Folds a sum below 2^40 to 16 bits. The result is zero only if the sum is.
#define FOLD_STEP(s) \
    m.value = s >> 16; \
    s = s & 0xffff; \
    s = s + m.value
#define FOLD(s) \
    FOLD_STEP(s); \
    FOLD_STEP(s); \
    FOLD_STEP(s)
// Adds two folded sums.
#define ADD16(s, x) \
    s = s + (x); \
    if (s < (x)) { \
        s = s + 1; \
    }
