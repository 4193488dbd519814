// What the machine allows an embedding table, and what the standard library would give.
//
// The limit: rows whose numbers are known, copied or changed in random order, fetched ahead.  The peer: one
// std::unordered_map from id to a row that was allocated by itself.
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_map>

namespace {

constexpr size_t kAhead = 16;  // rows
constexpr size_t kLineBytes = 64;
constexpr float kRate = 0.01f;

using Map = std::unordered_map<int64_t, std::unique_ptr<float[]>>;

template <int kForWriting>
void fetch(const float* row, size_t dim) {
  const char* first = reinterpret_cast<const char*>(row);
  for (size_t byte = 0; byte < dim * sizeof(float); byte += kLineBytes)
    __builtin_prefetch(first + byte, kForWriting);
}

}  // namespace

extern "C" {

// A block of zeros in 2 MB pages, never freed: a benchmark's process ends soon.
float* huge_block(size_t bytes) {
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) abort();
  madvise(block, bytes, MADV_HUGEPAGE);
  memset(block, 0, bytes);
  return static_cast<float*>(block);
}

void gather(const float* rows, size_t dim, const int64_t* numbers, size_t count, float* out) {
  for (size_t i = 0; i < count; i++) {
    if (i + kAhead < count) fetch<0>(rows + numbers[i + kAhead] * dim, dim);
    memcpy(out + i * dim, rows + numbers[i] * dim, dim * sizeof(float));
  }
}

void scatter_sgd(float* rows, size_t dim, const int64_t* numbers, size_t count, const float* gradients) {
  for (size_t i = 0; i < count; i++) {
    if (i + kAhead < count) fetch<1>(rows + numbers[i + kAhead] * dim, dim);
    float* __restrict row = rows + numbers[i] * dim;
    const float* __restrict gradient = gradients + i * dim;
    for (size_t k = 0; k < dim; k++) row[k] -= kRate * gradient[k];
  }
}

Map* map_new(const int64_t* ids, size_t count, size_t dim) {
  Map* map = new Map;
  for (size_t i = 0; i < count; i++) (*map)[ids[i]] = std::make_unique<float[]>(dim);
  return map;
}

void map_free(Map* map) { delete map; }

void map_gather(const Map* map, size_t dim, const int64_t* ids, size_t count, float* out) {
  for (size_t i = 0; i < count; i++)
    memcpy(out + i * dim, map->find(ids[i])->second.get(), dim * sizeof(float));
}
}
