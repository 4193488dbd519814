/* See scanning.h.  Rows are found 64 bytes at a time: a mask of each character that matters, and the parity of quotes by a
 * running exclusive-or over theirs. */
#include "scanning.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
#include <wmmintrin.h>
#endif

enum { BLOCK = 64, HEAD = 12, FOOT = 4, STRETCH = 8192 };

static inline uint64_t mask_of(const uint8_t *data, uint8_t letter)
{
#if defined(__SSE2__)
    const __m128i wanted = _mm_set1_epi8((char)letter);
    uint64_t mask = 0;
    for (int part = 0; part < 4; part++) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(data + 16 * part));
        mask |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, wanted)) << (16 * part);
    }
    return mask;
#else
    uint64_t mask = 0;
    for (int i = 0; i < BLOCK; i++)
        mask |= (uint64_t)(data[i] == letter) << i;
    return mask;
#endif
}

/* What is carried from block to block. */
typedef struct {
    uint64_t in_quotes;  /* all ones within quotes */
    uint64_t is_after_end;     /* 1: the next byte begins a line */
    uint64_t is_after_return;  /* 1: the byte before is a carriage return that began a line */
} carried;

/* The newlines that end lines, and of these the ones that end rows. */
static inline void ends_of(const uint8_t *block, int quote, int skip_empty, carried *state, uint64_t *lines,
                           uint64_t *rows)
{
    uint64_t newlines = mask_of(block, '\n');
    uint64_t within = 0;
    if (quote >= 0) {
        uint64_t parity = mask_of(block, (uint8_t)quote);
        if (parity != 0) {
            for (int shift = 1; shift < 64; shift *= 2)
                parity ^= parity << shift;
        }
        within = parity ^ state->in_quotes;
        state->in_quotes = (uint64_t)((int64_t)within >> 63);
    }
    newlines &= ~within;
    *lines = *rows = newlines;
    if (skip_empty) {
        const uint64_t begins = newlines << 1 | state->is_after_end;
        const uint64_t returns = mask_of(block, '\r') & ~within & begins;
        *rows = newlines & ~(begins | returns << 1 | state->is_after_return);
        state->is_after_return = returns >> 63;
    }
    state->is_after_end = newlines >> 63;
}

static inline const uint8_t *block_at(const uint8_t *data, int64_t size, int64_t at, uint8_t *rest)
{
    if (size - at >= BLOCK)
        return data + at;
    memset(rest, 0, BLOCK);
    memcpy(rest, data + at, (size_t)(size - at));
    return rest;
}

void edlz_count_rows(const uint8_t *data, int64_t size, int quote, int skip_empty, edlz_row_count *found)
{
    carried state = {0, 1, 0};
    uint8_t rest[BLOCK];
    int64_t rows_seen = 0, end = 0;
    for (int64_t at = 0; at < size; at += BLOCK) {
        uint64_t lines, rows;
        ends_of(block_at(data, size, at, rest), quote, skip_empty, &state, &lines, &rows);
        rows_seen += __builtin_popcountll(rows);
        if (lines != 0)
            end = at + BLOCK - __builtin_clzll(lines);
    }
    found->rows = rows_seen;
    found->end = end;
    found->is_open = state.in_quotes != 0;
}

static inline int64_t without_return(const uint8_t *data, int64_t start, int64_t end)
{
    return end > start && data[end - 1] == '\r' ? end - 1 : end;
}

int64_t edlz_row_bounds(const uint8_t *data, int64_t size, int quote, int skip_empty, int64_t first, int64_t count,
                        int64_t *starts, int64_t *ends, int32_t *is_open)
{
    carried state = {0, 1, 0};
    uint8_t rest[BLOCK];
    int64_t seen = 0, found = 0, start = 0;
    *is_open = 0;
    for (int64_t at = 0; at < size && found < count; at += BLOCK) {
        uint64_t lines, rows;
        ends_of(block_at(data, size, at, rest), quote, skip_empty, &state, &lines, &rows);
        const int in_block = __builtin_popcountll(rows);
        if (seen + in_block <= first) {
            seen += in_block;
            if (lines != 0)
                start = at + BLOCK - __builtin_clzll(lines);
            continue;
        }
        for (; lines != 0 && found < count; lines &= lines - 1) {
            const int bit = __builtin_ctzll(lines);
            if (rows >> bit & 1) {
                if (seen++ >= first) {
                    starts[found] = start;
                    ends[found++] = without_return(data, start, at + bit);
                }
            }
            start = at + bit + 1;
        }
    }
    if (found == count || start >= size)
        return found;
    *is_open = state.in_quotes != 0;
    const int64_t end = without_return(data, start, size);
    if (!*is_open && (end > start || !skip_empty) && seen >= first) {
        starts[found] = start;
        ends[found++] = end;
    }
    return found;
}

/* CRC-32C (Castagnoli), reflected polynomial 0x82f63b78; RFC 3720, appendix B.4. */
static uint32_t crc_of_plain(uint32_t crc, const uint8_t *data, int64_t size)
{
    static const uint32_t nibbles[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
        0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    for (int64_t i = 0; i < size; i++) {
        crc ^= data[i];
        crc = crc >> 4 ^ nibbles[crc & 15];
        crc = crc >> 4 ^ nibbles[crc & 15];
    }
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) static uint32_t crc_of_fast(uint32_t crc, const uint8_t *data, int64_t size)
{
    uint64_t wide = crc;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size > 0; data++, size--)
        crc = _mm_crc32_u8(crc, *data);
    return crc;
}

/* x^(8n - 33) modulo the polynomial, bits reversed, for n = STRETCH and twice that: a product with it, reduced, is the crc
 * with n zero bytes behind it.  Gopal et al., Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction (2011). */
static const uint32_t PAST_ONE = 0x54a86326, PAST_TWO = 0x1dc403cc;

__attribute__((target("sse4.2,pclmul"))) static inline uint64_t crc_past(uint64_t crc, uint32_t zeros)
{
    const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi32_si128((int)zeros), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

/* Three stretches side by side: the instruction takes another word each cycle, but gives its result only after three. */
__attribute__((target("sse4.2,pclmul"))) static uint32_t crc_of_three(uint32_t crc, const uint8_t *data, int64_t size)
{
    uint64_t first = crc;
    for (; size >= 3 * STRETCH; data += 3 * STRETCH, size -= 3 * STRETCH) {
        uint64_t second = 0, third = 0;
        for (int at = 0; at < STRETCH; at += 8) {
            uint64_t words[3];
            memcpy(&words[0], data + at, 8);
            memcpy(&words[1], data + STRETCH + at, 8);
            memcpy(&words[2], data + 2 * STRETCH + at, 8);
            first = _mm_crc32_u64(first, words[0]);
            second = _mm_crc32_u64(second, words[1]);
            third = _mm_crc32_u64(third, words[2]);
        }
        first = crc_past(first, PAST_TWO) ^ crc_past(second, PAST_ONE) ^ third;
    }
    return crc_of_fast((uint32_t)first, data, size);
}
#endif

static uint32_t crc_on(uint32_t crc, const uint8_t *data, int64_t size)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("sse4.2")) {
        if (size >= 3 * STRETCH && __builtin_cpu_supports("pclmul"))
            return crc_of_three(crc, data, size);
        return crc_of_fast(crc, data, size);
    }
#endif
    return crc_of_plain(crc, data, size);
}

uint32_t edlz_crc32c(const uint8_t *data, int64_t size)
{
    return ~crc_on(0xffffffffu, data, size);
}

/* TFRecord stores checksums rotated and shifted, since a checksum of data with checksums in it is weak. */
static int is_sum_of(const uint8_t *stored, const uint8_t *data, int64_t size)
{
    const uint32_t crc = edlz_crc32c(data, size), masked = (crc >> 15 | crc << 17) + 0xa282ead8u;
    return stored[0] == (masked & 255) && stored[1] == (masked >> 8 & 255) && stored[2] == (masked >> 16 & 255) &&
           stored[3] == masked >> 24;
}

/* The length of the record at a place; -1 with the reason in *error. */
static int64_t length_at(const uint8_t *data, int64_t size, int64_t at, int32_t *error)
{
    if (size - at < HEAD) {
        *error = EDLZ_CUT_OFF;
        return -1;
    }
    if (!is_sum_of(data + at + 8, data + at, 8)) {
        *error = EDLZ_BAD_LENGTH;
        return -1;
    }
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | data[at + i];
    const int64_t room = size - at - HEAD - FOOT;
    if (room < 0 || length > (uint64_t)room) {
        *error = EDLZ_CUT_OFF;
        return -1;
    }
    return (int64_t)length;
}

void edlz_hop_records(const uint8_t *data, int64_t size, int64_t begin, int64_t limit, edlz_record_count *found)
{
    int64_t at = begin;
    uint32_t crc = 0xffffffffu;
    found->records = 0;
    found->error = EDLZ_WHOLE;
    while (at < size && at - begin < limit) {
        const int64_t length = length_at(data, size, at, &found->error);
        if (length < 0)
            break;
        crc = crc_on(crc, data + at, 8);
        at += HEAD + length;
        crc = crc_on(crc, data + at, FOOT);
        at += FOOT;
        found->records++;
    }
    found->end = at;
    found->checksum = ~crc;
}

void edlz_record_bounds(const uint8_t *data, int64_t size, int64_t first, int64_t count, int64_t *starts,
                        int64_t *ends, edlz_record_count *found)
{
    int64_t at = 0, number = 0;
    found->records = 0;
    found->checksum = 0;
    found->error = EDLZ_WHOLE;
    while (at < size && found->records < count) {
        const int64_t length = length_at(data, size, at, &found->error);
        if (length < 0)
            break;
        if (number++ >= first) {
            const uint8_t *body = data + at + HEAD;
            if (!is_sum_of(body + length, body, length)) {
                found->error = EDLZ_BAD_DATA;
                break;
            }
            starts[found->records] = at + HEAD;
            ends[found->records++] = at + HEAD + length;
        }
        at += HEAD + length + FOOT;
    }
    found->end = at;
}
