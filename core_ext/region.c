/* Reserved by PROT_NONE and MAP_NORESERVE: neither counts against a limit on memory before it is used. */
#define _GNU_SOURCE
#include "region.h"

#include <string.h>
#include <sys/mman.h>

/* Commitments of less than a huge page come in these steps; a multiple of the page size of every processor. */
enum { SMALL_STEP_BYTES = 64 << 10 };

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

int edlz_region_reserve(edlz_region *region, size_t bytes, size_t first_huge)
{
    memset(region, 0, sizeof *region);
    if (bytes > SIZE_MAX / 2)
        return -1;
    bytes = round_up(bytes ? bytes : 1, bytes < EDLZ_HUGE_PAGE_BYTES ? SMALL_STEP_BYTES : EDLZ_HUGE_PAGE_BYTES);
    const size_t mapping_bytes = bytes + EDLZ_HUGE_PAGE_BYTES;
    void *mapping = mmap(NULL, mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return -1;
    region->mapping = mapping;
    region->mapping_bytes = mapping_bytes;
    region->base = (char *)round_up((uintptr_t)mapping, EDLZ_HUGE_PAGE_BYTES);
    region->reserved = bytes;
#ifdef MADV_HUGEPAGE
    if (first_huge < bytes) /* advice: where it is refused, pages are small */
        madvise(region->base + first_huge, bytes - first_huge, MADV_HUGEPAGE);
#else
    (void)first_huge;
#endif
    return 0;
}

int edlz_region_commit(edlz_region *region, size_t bytes)
{
    if (bytes <= region->committed)
        return 0;
    size_t end = round_up(bytes, bytes < EDLZ_HUGE_PAGE_BYTES ? SMALL_STEP_BYTES : EDLZ_HUGE_PAGE_BYTES);
    if (end > region->reserved)
        end = region->reserved;
    if (mprotect(region->base + region->committed, end - region->committed, PROT_READ | PROT_WRITE))
        return -1;
    region->committed = end;
    return 0;
}

void edlz_region_discard(edlz_region *region, size_t begin, size_t end)
{
    begin = round_up(begin, EDLZ_HUGE_PAGE_BYTES);
    end -= end % EDLZ_HUGE_PAGE_BYTES;
    if (begin < end)
        madvise(region->base + begin, end - begin, MADV_DONTNEED);
}

void edlz_region_release(edlz_region *region)
{
    if (region->mapping)
        munmap(region->mapping, region->mapping_bytes);
    memset(region, 0, sizeof *region);
}
