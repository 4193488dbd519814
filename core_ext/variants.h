/* EDLZ_KERNEL before a function compiles it three times (AVX-512, AVX2, SSE2); the loader picks one by the
 * processor.  Built with -ffp-contract=off, since a fused multiply-add rounds once where SSE2 rounds twice.
 *
 * Tests build one variant alone: -DEDLZ_ONLY_VARIANT='"arch=x86-64-v3"', with its name.  (The choice cannot be turned by
 * GLIBC_TUNABLES: GCC's resolvers ask the processor itself.)
 */
#ifndef EDLZ_VARIANTS_H
#define EDLZ_VARIANTS_H

/* GCC 12 is the first that takes the names of the x86-64 levels; musl, macOS and clang have no such clones. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__) && __GNUC__ >= 12
#define EDLZ_HAS_VARIANTS 1
#ifdef EDLZ_ONLY_VARIANT
#define EDLZ_KERNEL __attribute__((target(EDLZ_ONLY_VARIANT)))
#else
#define EDLZ_KERNEL __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
#else
#define EDLZ_HAS_VARIANTS 0
#define EDLZ_KERNEL
#endif

#endif
