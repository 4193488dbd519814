/* Where records lie in the bytes of a file: rows of text between newlines, and TFRecords behind their lengths.
 *
 * A newline ends a row if the number of quotes before it is even; a quote of -1: every newline does.  An empty line, or one
 * of a carriage return alone, is a row unless `skip_empty`.  Data begins where a row or a record begins.
 */
#ifndef EDLZ_SCANNING_H
#define EDLZ_SCANNING_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int64_t rows;     /* that have ended */
    int64_t end;      /* behind the last newline that ends a row or an empty line */
    int32_t is_open;  /* the data ends within quotes */
} edlz_row_count;

void edlz_count_rows(const uint8_t *data, int64_t size, int quote, int skip_empty, edlz_row_count *found);

/* Fill starts and ends (without newline) of up to `count` rows from number `first` on; return how many there are.
 * The last row may lack its newline; if it lacks its closing quote it is not counted, and *is_open is set. */
int64_t edlz_row_bounds(const uint8_t *data, int64_t size, int quote, int skip_empty, int64_t first, int64_t count,
                        int64_t *starts, int64_t *ends, int32_t *is_open);

enum { EDLZ_WHOLE = 0, EDLZ_CUT_OFF = 1, EDLZ_BAD_LENGTH = 2, EDLZ_BAD_DATA = 3 };

typedef struct {
    int64_t records;    /* whole ones */
    int64_t end;        /* behind the last of them */
    uint32_t checksum;  /* of their lengths and of the checksums of their data */
    int32_t error;
} edlz_record_count;

uint32_t edlz_crc32c(const uint8_t *data, int64_t size);

/* Hop over records from `begin` until `limit` bytes are passed; data is not looked at. */
void edlz_hop_records(const uint8_t *data, int64_t size, int64_t begin, int64_t limit, edlz_record_count *found);

/* Fill starts and ends of the data of up to `count` records, whose checksums are looked at, behind `first` others. */
void edlz_record_bounds(const uint8_t *data, int64_t size, int64_t first, int64_t count, int64_t *starts,
                        int64_t *ends, edlz_record_count *found);

#endif
