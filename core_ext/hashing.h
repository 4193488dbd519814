/* The hash of ids, shared by whatever groups, finds or assigns them.
 *
 * One mixing serves two purposes that must not depend on each other: which partition owns an id is decided by
 * the whole value modulo the number of partitions (for a power of two its LOW bits), so a hash table over the
 * ids of one partition takes its HIGH bits.  A table that took the low bits would find them equal in all its
 * ids and fill only one place in N.
 */
#ifndef EDLZ_HASHING_H
#define EDLZ_HASHING_H

#include <stdint.h>

/* The output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014, with Stafford's variant 13 of the
 * constants): a bijection of 64 bits in which each input bit changes each output bit half of the time. */
static inline uint64_t edlz_mix64(uint64_t x)
{
    uint64_t z = x + UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* The partition, of `partitions` > 0, that owns an id. */
static inline uint32_t edlz_partition_of(int64_t id, uint32_t partitions)
{
    return (uint32_t)(edlz_mix64((uint64_t)id) % partitions);
}

#endif
