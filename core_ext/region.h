/* Memory that grows without moving: address space reserved once, made usable from its start on, as needed. */
#ifndef EDLZ_REGION_H
#define EDLZ_REGION_H

#include <stddef.h>
#include <stdint.h>

#define EDLZ_NEVER_HUGE SIZE_MAX
enum { EDLZ_HUGE_PAGE_BYTES = 2 << 20 };

/* Invariant: bytes [0, committed) can be used and were zero at first; the rest up to `reserved` cannot. */
typedef struct edlz_region {
    char *base; /* on a multiple of 2 MB; NULL if there is no region */
    size_t reserved, committed;
    void *mapping; /* what the operating system gave, with what was needed to align `base` */
    size_t mapping_bytes;
} edlz_region;

/* Reserve address space, no memory.  Pages are huge ones from `first_huge` bytes on (a multiple of their size,
 * or EDLZ_NEVER_HUGE), where there are such.  0, or -1 if the operating system refuses: *region is empty then. */
int edlz_region_reserve(edlz_region *region, size_t bytes, size_t first_huge);

/* Make at least the first `bytes` usable, at most `reserved`.  0, or -1 if the operating system refuses. */
int edlz_region_commit(edlz_region *region, size_t bytes);

/* Give memory in [begin, end) back; it reads as zeros from now on.  Whole huge pages only, the rest stays. */
void edlz_region_discard(edlz_region *region, size_t begin, size_t end);

/* Give everything back; the region is empty afterwards.  An empty one may be released, too. */
void edlz_region_release(edlz_region *region);

#endif
